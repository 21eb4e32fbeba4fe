// How fast one core encodes and decodes, by kind of text.
// usage: tokenizer_bench [TOKENIZER.json [TEXT-FILE...]]     (from the source root; default: the demo model
// and the repository's own texts) Times are CPU time of one thread. Each kind is encoded whole: once cold
// (fresh tables, empty cache), then repeatedly; the best and the median repeat are shown.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "io/json.h"
#include "io/mmap_file.h"
#include "tokenizer/token_map.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace deepinfer;

constexpr std::size_t kMinBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;

struct Text {
  std::string kind, bytes;
};

// Seconds this thread has computed: what other processes do on the machine hardly matters.
double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::string all_files(const std::string& folder, const std::vector<std::string>& extensions) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension().string();
    if (std::find(extensions.begin(), extensions.end(), extension) != extensions.end())
      paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::string out;
  for (const std::string& path : paths) out += read_text_file(path, kMaxFileBytes).value();
  return out;
}

// The demo model's held-out documents (novels, manuals, Chinese classics, code), decoded from their stored
// ids.
std::string documents() {
  const Tokenizer demo = Tokenizer::load("models/demo-v41/tokenizer.json").value();
  const Json golden =
      parse_json(read_text_file("tests/golden/v41-demo/demo_golden.json", kMaxFileBytes).value()).value();
  std::string out;
  for (const Json& ids : golden.find("docs_ids")->as_array()) {
    for (const Json& id : ids.as_array()) out += demo.token_bytes(static_cast<TokenId>(id.as_int()));
  }
  return out;
}

std::string golden_texts() {
  std::string out, all = read_text_file("tests/tokenizer/data/demo_encode.jsonl", kMaxFileBytes).value();
  for (std::size_t from = 0, end; (end = all.find('\n', from)) != std::string::npos; from = end + 1) {
    out += parse_json(std::string_view(all).substr(from, end - from))->find("text")->as_string();
  }
  return out;
}

std::string random_bytes() {
  std::mt19937_64 rng(1);
  std::string out(1 << 20, '\0');
  for (char& c : out) c = static_cast<char>(rng());
  return out;
}

void measure(const std::string& tokenizer_path, const Text& text) {
  std::string bytes = text.bytes;
  while (bytes.size() < kMinBytes) bytes += text.bytes;
  const double megabytes = static_cast<double>(bytes.size()) / 1e6;
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_path).value();
  std::vector<TokenId> ids;
  ids.reserve(bytes.size());
  std::vector<double> seconds;
  for (int round = 0; round < 7; ++round) {
    ids.clear();
    const double start = now();
    tokenizer.encode_to(bytes, {.parse_special = true}, ids);
    seconds.push_back(now() - start);
  }
  const double cold = seconds[0];
  std::sort(seconds.begin() + 1, seconds.end());
  const double start = now();
  const std::string back = tokenizer.decode(ids);
  const double decode = now() - start;
  std::printf(
      "%-22s %7.2f MB  %5.2f bytes/token   cold %6.1f   best %6.1f   median %6.1f MB/s   decode %7.1f "
      "MB/s%s\n",
      text.kind.c_str(), megabytes, static_cast<double>(bytes.size()) / static_cast<double>(ids.size()),
      megabytes / cold, megabytes / seconds[1], megabytes / seconds[4], megabytes / decode,
      back == bytes ? "" : "   WRONG");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "models/demo-v41/tokenizer.json";
  const double start = now();
  const auto tokenizer = Tokenizer::load(path);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "tokenizer_bench: %s\n", tokenizer.error().to_string().c_str());
    return 1;
  }
  const double loaded = now();
  const auto map = derive_token_map(*tokenizer);
  std::printf("%s: %lld tokens, loaded in %.0f ms, token map in %.0f ms\n", path.c_str(),
              static_cast<long long>(tokenizer->vocab_size()), (loaded - start) * 1e3,
              (now() - loaded) * 1e3);
  std::vector<Text> texts;
  for (int i = 2; i < argc; ++i) texts.push_back({argv[i], read_text_file(argv[i], kMaxFileBytes).value()});
  if (texts.empty()) {
    texts.push_back({"documents", documents()});
    texts.push_back({"source code", all_files("src", {".cc", ".h"})});
    texts.push_back({"mixed Unicode", golden_texts()});
    texts.push_back({"random bytes", random_bytes()});
    texts.push_back({"one letter", std::string(kMinBytes, 'a')});
  }
  for (const Text& text : texts) measure(path, text);
  return 0;
}
