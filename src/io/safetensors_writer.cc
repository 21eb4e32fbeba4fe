#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "io/json.h"
#include "io/safetensors.h"

namespace deepinfer {

SafetensorsWriter::SafetensorsWriter(std::string path)
    : path_(std::move(path)), temporary_path_(path_ + ".partial") {}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_path_.c_str());
}

void SafetensorsWriter::set_metadata(std::string key, std::string value) {
  metadata_.emplace_back(std::move(key), std::move(value));
}

Status SafetensorsWriter::declare(const std::string& name, DType dtype, const Shape& shape) {
  DI_CHECK(fd_ < 0, "declare() after the first append()");
  if (name.empty() || name == "__metadata__")
    return invalid_argument("not a tensor name: \"" + name + "\"", path_);
  const bool known =
      std::any_of(entries_.begin(), entries_.end(), [&name](const Entry& e) { return e.name == name; });
  if (known) return invalid_argument(fmt::format("the tensor {} is announced twice", name), path_);
  const auto elements = element_count(shape);
  std::uint64_t size_bytes = 0;
  if (!elements ||
      __builtin_mul_overflow(static_cast<std::uint64_t>(*elements), dtype_size_bytes(dtype), &size_bytes))
    return invalid_argument(fmt::format("the tensor {} has an impossible shape {}", name, shape_text(shape)),
                            path_);
  entries_.push_back({name, dtype, shape, size_bytes});
  announced_bytes_ += size_bytes;
  return {};
}

Status SafetensorsWriter::write_all(const void* data, std::size_t size_bytes) {
  const char* at = static_cast<const char*>(data);
  while (size_bytes > 0) {
    const ssize_t count = ::write(fd_, at, std::min(size_bytes, std::size_t{1} << 30));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error("cannot write", errno, temporary_path_);
    at += count;
    size_bytes -= static_cast<std::size_t>(count);
  }
  return {};
}

Status SafetensorsWriter::write_header() {
  fd_ = ::open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) return io_error("cannot create the file", errno, temporary_path_);
  JsonObject header;  // filled directly: Json::set would look for earlier members of the same name every time
  if (!metadata_.empty()) {
    Json metadata = Json::object();
    for (const auto& [key, value] : metadata_) metadata.set(key, value);
    header.emplace_back("__metadata__", std::move(metadata));
  }
  std::uint64_t offset = 0;
  for (const Entry& entry : entries_) {
    Json shape = Json::array();
    for (const std::int64_t d : entry.shape) shape.push(d);
    Json item;
    item.set("dtype", dtype_name(entry.dtype)).set("shape", std::move(shape));
    item.set("data_offsets", JsonArray{offset, offset + entry.size_bytes});
    header.emplace_back(entry.name, std::move(item));
    offset += entry.size_bytes;
  }
  std::string text = to_json_text(Json(std::move(header)));
  text.append((8 - text.size() % 8) % 8, ' ');  // the data area starts at a multiple of 8
  const std::uint64_t length = text.size();
  DI_TRY(write_all(&length, sizeof(length)));
  return write_all(text.data(), text.size());
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
  if (fd_ < 0) DI_TRY(write_header());
  if (bytes.size() > announced_bytes_ - written_bytes_)
    return invalid_argument("more bytes than the announced tensors hold", path_);
  DI_TRY(write_all(bytes.data(), bytes.size()));
  written_bytes_ += bytes.size();
  return {};
}

Status SafetensorsWriter::finish() {
  if (fd_ < 0) DI_TRY(write_header());
  if (written_bytes_ != announced_bytes_)
    return invalid_argument(
        fmt::format("{} of {} announced bytes were written", written_bytes_, announced_bytes_), path_);
  if (::fsync(fd_) != 0) return io_error("cannot sync the file", errno, temporary_path_);
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) return io_error("cannot close the file", errno, temporary_path_);
  if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0)
    return io_error("cannot rename into place", errno, path_);
  return {};
}

}  // namespace deepinfer
