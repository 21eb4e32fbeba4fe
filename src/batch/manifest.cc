#include "batch/manifest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace deepinfer {
namespace {

// Enough to tell two files of equal size apart in practice; the journal also holds a sum over all answered
// lines.
constexpr std::size_t kSampleBytes = 64 << 10;

std::string shown(const Json* value) {
  if (value == nullptr) return "nothing";
  std::string text = to_json_text(*value);
  return text.size() > 100 ? text.substr(0, 100) + "…" : text;
}

std::string difference(const Json* a, const Json* b, const std::string& pointer) {
  if (pointer == "/created") return "";
  if (a != nullptr && b != nullptr && a->is_object() && b->is_object()) {
    for (const auto& [key, value] : a->as_object()) {
      std::string found = difference(&value, b->find(key), pointer + "/" + json_pointer_token(key));
      if (!found.empty()) return found;
    }
    for (const auto& [key, value] : b->as_object()) {
      if (a->find(key) == nullptr)
        return difference(nullptr, &value, pointer + "/" + json_pointer_token(key));
    }
    return "";
  }
  if (a != nullptr && b != nullptr && *a == *b) return "";
  return fmt::format("field \"{}\": the run has {}, now it is {}", pointer, shown(a), shown(b));
}

Status write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error("cannot write the manifest", errno, path);
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fsync(fd) != 0) return io_error("cannot write the manifest", errno, path);
  return {};
}

}  // namespace

std::string manifest_path(const std::string& output) {
  return output + ".manifest.json";
}

Result<Json> describe_input(const std::string& input) {
  Json stream("stream");
  if (input == "-") return stream;
  const int fd = ::open(input.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const int failure = errno;
    if (failure == ENOENT) return not_found("no such file", input);
    return io_error("cannot open the file", failure, input);
  }
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return stream;
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  const std::size_t sample = std::min(size, kSampleBytes);
  std::vector<char> bytes(2 * sample);
  const ssize_t head = ::pread(fd, bytes.data(), sample, 0);
  const ssize_t tail = ::pread(fd, bytes.data() + sample, sample, static_cast<off_t>(size - sample));
  const int failure = errno;
  ::close(fd);
  if (head != static_cast<ssize_t>(sample) || tail != static_cast<ssize_t>(sample)) {
    return io_error("cannot read the file", head < 0 || tail < 0 ? failure : EIO, input);
  }
  Json out;
  out.set("bytes", static_cast<std::uint64_t>(size));
  out.set("head_tail_hash", fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size())));
  return out;
}

std::string manifest_difference(const Json& recorded, const Json& present) {
  return difference(&recorded, &present, "");
}

Result<std::optional<Json>> read_manifest(const std::string& output) {
  const std::string path = manifest_path(output);
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (std::error_code ignored; !std::filesystem::exists(path, ignored)) return std::optional<Json>();
    return io_error("cannot open the file", errno, path);
  }
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Result<Json> parsed = parse_json(text);
  if (!parsed.ok()) return parsed.error().at(path);
  if (!parsed->is_object()) return corrupt("not a manifest", path);
  return std::optional<Json>(std::move(*parsed));
}

Status write_manifest(const std::string& output, const Json& manifest) {
  const std::string path = manifest_path(output);
  const std::string draft = path + ".new";
  const int fd = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return io_error("cannot write the manifest", errno, draft);
  const Status written = write_all(fd, to_json_text(manifest, 2) + "\n", draft);
  ::close(fd);
  if (!written.ok()) {
    ::unlink(draft.c_str());
    return written;
  }
  if (std::rename(draft.c_str(), path.c_str()) != 0)
    return io_error("cannot write the manifest", errno, path);
  return {};
}

}  // namespace deepinfer
