#include "support/golden.h"

#include "model/open_model.h"

namespace deepinfer::testing {
namespace {

SafetensorsFile open_file(const std::string& path) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  DI_CHECK(file.ok(), file.ok() ? "" : file.error().to_string());
  return std::move(file).value();
}

}  // namespace

Golden::Golden(const std::string& path) : file_(open_file(path)) {}

const TensorView& Golden::tensor(const std::string& name) const {
  const TensorView* view = file_.find(name);
  DI_CHECK(view != nullptr, "no golden tensor ", name);
  return *view;
}

std::vector<float> Golden::floats(const std::string& name) const {
  return to_f32(tensor(name)).value();
}

std::vector<std::int64_t> Golden::ints(const std::string& name) const {
  const TensorView& view = tensor(name);
  std::vector<std::int64_t> out(static_cast<std::size_t>(view.elements()));
  if (view.dtype == DType::kI64) {
    view.copy_to<std::int64_t>(0, out);
  } else if (view.dtype == DType::kI32) {
    std::vector<std::int32_t> narrow(out.size());
    view.copy_to<std::int32_t>(0, narrow);
    out.assign(narrow.begin(), narrow.end());
  } else if (view.dtype == DType::kBool || view.dtype == DType::kU8) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::int64_t>(view.data[i]);
  } else {
    DI_CHECK(false, name, " is of type ", dtype_name(view.dtype));
  }
  return out;
}

Shape Golden::shape(const std::string& name) const {
  return tensor(name).shape;
}

Runner::Runner(Model& model, SlotId slot, BlockId first_block, std::int64_t max_tokens)
    : model_(model), slot_(slot) {
  const std::int64_t count = (max_tokens + kBlockTokens - 1) / kBlockTokens;
  for (std::int64_t b = 0; b < count; ++b) blocks_.push_back(first_block + static_cast<BlockId>(b));
}

Chunk Runner::next_chunk(const std::vector<TokenId>& tokens, std::int64_t logits_from) const {
  return {.slot = slot_,
          .start = length(),
          .tokens = tokens,
          .history = ids_,
          .blocks = blocks_,
          .logits_from = logits_from};
}

std::vector<float> Runner::append(const std::vector<TokenId>& tokens, std::int64_t chunk) {
  const auto vocab = static_cast<std::size_t>(model_.vocab_size());
  std::vector<float> logits(tokens.size() * vocab);
  for (std::size_t begin = 0; begin < tokens.size(); begin += static_cast<std::size_t>(chunk)) {
    const std::size_t end = std::min(tokens.size(), begin + static_cast<std::size_t>(chunk));
    const std::vector<TokenId> part(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                    tokens.begin() + static_cast<std::ptrdiff_t>(end));
    const Chunk c = next_chunk(part, 0);
    const Status status = model_.forward({&c, 1});
    DI_CHECK(status.ok(), status.ok() ? "" : status.error().to_string());
    const Status head = model_.logits(0, model_.output_rows(),
                                      std::span<float>(logits).subspan(begin * vocab, (end - begin) * vocab));
    DI_CHECK(head.ok(), "logits");
    commit(part);
  }
  return logits;
}

std::unique_ptr<Decoder> open_or_die(const std::string& folder, const ModelOptions& options) {
  Result<std::unique_ptr<Decoder>> model = open_model(folder, options);
  DI_CHECK(model.ok(), model.ok() ? "" : model.error().to_string());
  return std::move(model).value();
}

std::vector<TokenId> to_tokens(const std::vector<std::int64_t>& ids) {
  return {ids.begin(), ids.end()};
}

}  // namespace deepinfer::testing
