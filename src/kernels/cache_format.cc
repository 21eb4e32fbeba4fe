#include "kernels/cache_format.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/check.h"
#include "tensor/float_formats.h"
#include "tensor/quantize.h"

namespace deepinfer {
namespace {

std::int64_t blocks_of(std::int64_t size, std::int64_t block) {
  return (size + block - 1) / block;
}

std::size_t zu(std::int64_t v) {
  return static_cast<std::size_t>(v);
}

}  // namespace

RecordFormat make_record_format(RecordKind kind, std::int64_t dim, std::int64_t rope) {
  DI_CHECK(dim > 0 && rope >= 0 && rope <= dim, "record of ", dim, " channels, ", rope, " rotated");
  RecordFormat f{.kind = kind, .dim = dim, .rope = rope};
  const std::int64_t plain = dim - rope;
  switch (kind) {
    case RecordKind::kF32:
      f.bytes = 4 * dim;
      break;
    case RecordKind::kFp8Block32:
      f.block = 32;
      f.bytes = dim + blocks_of(dim, f.block);
      break;
    case RecordKind::kFp4Block16:
    case RecordKind::kFp4Block32:
      f.block = kind == RecordKind::kFp4Block16 ? 16 : 32;
      DI_CHECK(dim % 2 == 0, "FP4 records need an even width, not ", dim);
      f.bytes = dim / 2 + blocks_of(dim, f.block);
      break;
    case RecordKind::kFp8Split64:
    case RecordKind::kFp8Split64F32:
      f.block = 64;
      f.bytes =
          plain + rope * (kind == RecordKind::kFp8Split64 ? 2 : 4) + (blocks_of(plain, f.block) + 7) / 8 * 8;
      break;
  }
  return f;
}

void encode_record(const RecordFormat& f, const float* x, std::uint8_t* record) {
  const std::span<const float> row(x, zu(f.dim));
  const std::int64_t plain = f.dim - f.rope;
  switch (f.kind) {
    case RecordKind::kF32:
      std::memcpy(record, x, zu(f.bytes));
      return;
    case RecordKind::kFp8Block32:
      fp8_encode(row, zu(f.block), {record, zu(f.dim)}, {record + f.dim, zu(blocks_of(f.dim, f.block))});
      return;
    case RecordKind::kFp4Block16:
      fp4_e4m3_encode(row, zu(f.block), {record, zu(f.dim / 2)},
                      {record + f.dim / 2, zu(blocks_of(f.dim, f.block))});
      return;
    case RecordKind::kFp4Block32:
      fp4_ue8m0_encode(row, zu(f.block), {record, zu(f.dim / 2)},
                       {record + f.dim / 2, zu(blocks_of(f.dim, f.block))});
      return;
    case RecordKind::kFp8Split64:
    case RecordKind::kFp8Split64F32: {
      std::uint8_t* rotated = record + plain;
      std::uint8_t* scales = record + f.bytes - (blocks_of(plain, f.block) + 7) / 8 * 8;
      fp8_encode(row.first(zu(plain)), zu(f.block), {record, zu(plain)},
                 {scales, zu(blocks_of(plain, f.block))});
      for (std::int64_t i = 0; i < f.rope; ++i) {
        if (f.kind == RecordKind::kFp8Split64F32) {
          std::memcpy(rotated + 4 * i, x + plain + i, 4);
        } else {
          const std::uint16_t bits = f32_to_bf16(x[plain + i]);
          std::memcpy(rotated + 2 * i, &bits, 2);
        }
      }
      return;
    }
  }
}

void decode_record(const RecordFormat& f, const std::uint8_t* record, float* x) {
  const std::span<float> row(x, zu(f.dim));
  const std::int64_t plain = f.dim - f.rope;
  switch (f.kind) {
    case RecordKind::kF32:
      std::memcpy(x, record, zu(f.bytes));
      return;
    case RecordKind::kFp8Block32:
      fp8_decode({record, zu(f.dim)}, {record + f.dim, zu(blocks_of(f.dim, f.block))}, zu(f.block), row);
      return;
    case RecordKind::kFp4Block16:
      fp4_e4m3_decode({record, zu(f.dim / 2)}, {record + f.dim / 2, zu(blocks_of(f.dim, f.block))},
                      zu(f.block), row);
      return;
    case RecordKind::kFp4Block32:
      fp4_ue8m0_decode({record, zu(f.dim / 2)}, {record + f.dim / 2, zu(blocks_of(f.dim, f.block))},
                       zu(f.block), row);
      return;
    case RecordKind::kFp8Split64:
    case RecordKind::kFp8Split64F32: {
      const std::uint8_t* rotated = record + plain;
      const std::uint8_t* scales = record + f.bytes - (blocks_of(plain, f.block) + 7) / 8 * 8;
      fp8_decode({record, zu(plain)}, {scales, zu(blocks_of(plain, f.block))}, zu(f.block),
                 row.first(zu(plain)));
      for (std::int64_t i = 0; i < f.rope; ++i) {
        if (f.kind == RecordKind::kFp8Split64F32) {
          std::memcpy(x + plain + i, rotated + 4 * i, 4);
        } else {
          std::uint16_t bits = 0;
          std::memcpy(&bits, rotated + 2 * i, 2);
          x[plain + i] = bf16_to_f32(bits);
        }
      }
      return;
    }
  }
}

}  // namespace deepinfer
