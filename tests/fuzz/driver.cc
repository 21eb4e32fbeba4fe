// Runs a fuzz target without libFuzzer: every corpus file once, then mutations of them until the time is
// over.
//
//   fuzz_x --corpus DIR [--seconds N] [--seed S]     mutate; the seed is printed
//   fuzz_x FILE…                                     run files (a saved crash)
//
// When the target stops the process, the input that did it is written to fuzz_crash.bin in the working
// folder.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Present in sanitizer builds only; runs before a sanitizer ends the process.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Input = std::vector<std::uint8_t>;

constexpr std::size_t kMaxInputBytes = 1 << 16;

const Input* current_input = nullptr;

void save_current_input() {
  if (current_input == nullptr) return;
  const int fd = ::open("fuzz_crash.bin", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) return;
  const ssize_t written = ::write(fd, current_input->data(), current_input->size());
  static_cast<void>(written);
  ::close(fd);
  static constexpr char kNote[] = "the input is in fuzz_crash.bin\n";
  const ssize_t noted = ::write(STDERR_FILENO, kNote, sizeof(kNote) - 1);
  static_cast<void>(noted);
}

void on_signal(int signal) {
  save_current_input();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(const Input& input) {
  current_input = &input;
  // A copy of exactly this size: reading past the end is seen by AddressSanitizer.
  const Input exact(input);
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  current_input = nullptr;
}

Input read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class Mutator {
 public:
  Mutator(std::vector<Input> corpus, std::uint64_t seed) : corpus_(std::move(corpus)), rng_(seed) {}

  Input next() {
    Input input = corpus_[below(corpus_.size())];
    for (std::size_t left = 1 + below(6); left > 0; --left) mutate(input);
    if (input.size() > kMaxInputBytes) input.resize(kMaxInputBytes);
    return input;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(rng_() % n); }

  void mutate(Input& x) {
    const std::size_t at = below(x.size() + 1);
    const std::size_t length = std::min(x.size() - at, 1 + below(16));
    const auto pos = x.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(9)) {
      case 0:  // flip a bit
        if (at < x.size()) x[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 1:  // any byte
        if (at < x.size()) x[at] = static_cast<std::uint8_t>(rng_());
        break;
      case 2: {  // insert a byte that parsers care about
        static constexpr std::string_view kBytes = "{}[]\",:\\0123456789-+.eE \n\r\t/<>|\xff\xc3\x80";
        x.insert(pos, static_cast<std::uint8_t>(kBytes[below(kBytes.size())]));
        break;
      }
      case 3:
        x.erase(pos, pos + static_cast<std::ptrdiff_t>(length));
        break;
      case 4: {  // repeat a piece
        const Input piece(pos, pos + static_cast<std::ptrdiff_t>(length));
        for (std::size_t i = 1 + below(40); i > 0; --i)
          x.insert(x.begin() + static_cast<std::ptrdiff_t>(at), piece.begin(), piece.end());
        break;
      }
      case 5: {  // a piece of another input
        const Input& other = corpus_[below(corpus_.size())];
        const std::size_t from = below(other.size() + 1);
        const std::size_t count = std::min(other.size() - from, 1 + below(64));
        x.insert(pos, other.begin() + static_cast<std::ptrdiff_t>(from),
                 other.begin() + static_cast<std::ptrdiff_t>(from + count));
        break;
      }
      case 6: {  // an interesting number as text or as eight bytes
        static constexpr const char* kNumbers[] = {
            "0", "-1", "9223372036854775807", "18446744073709551615", "4294967296", "1e308", "2147483648"};
        const std::string text = kNumbers[below(std::size(kNumbers))];
        if (below(2) == 0) {
          x.insert(pos, text.begin(), text.end());
        } else {
          const std::uint64_t word = std::strtoull(text.c_str(), nullptr, 10);
          for (std::size_t i = 0; i < 8 && at + i < x.size(); ++i)
            x[at + i] = static_cast<std::uint8_t>(word >> (8 * i));
        }
        break;
      }
      case 7:
        x.resize(at);
        break;
      default:  // a small step of a byte: lengths and digits
        if (at < x.size()) x[at] = static_cast<std::uint8_t>(x[at] + (below(2) == 0 ? 1 : 255));
        break;
    }
  }

  std::vector<Input> corpus_;
  std::mt19937_64 rng_;
};

int usage(const char* program) {
  std::fprintf(stderr, "usage: %s --corpus DIR [--seconds N] [--seed S] | FILE...\n", program);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::string corpus_folder;
  double seconds = 2;
  std::uint64_t seed = std::random_device{}();
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (argument.rfind("--", 0) != 0) {
      files.emplace_back(argument);
      continue;
    }
    if (value == nullptr) return usage(argv[0]);
    ++i;
    if (argument == "--corpus")
      corpus_folder = value;
    else if (argument == "--seconds")
      seconds = std::strtod(value, nullptr);
    else if (argument == "--seed")
      seed = std::strtoull(value, nullptr, 10);
    else
      return usage(argv[0]);
  }
  if (corpus_folder.empty() == files.empty()) return usage(argv[0]);

  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    if (__sanitizer_set_death_callback == nullptr) std::signal(signal, on_signal);
  }
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(save_current_input);

  if (!corpus_folder.empty()) {
    std::error_code ec;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(corpus_folder, ec)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    if (ec || files.empty()) {
      std::fprintf(stderr, "no corpus in %s\n", corpus_folder.c_str());
      return 2;
    }
  }
  std::vector<Input> corpus;
  for (const auto& file : files) corpus.push_back(read(file));
  for (const Input& input : corpus) run(input);
  if (corpus_folder.empty()) return 0;

  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  Mutator mutator(std::move(corpus), seed);
  std::uint64_t runs = 0;
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 16; ++i, ++runs) run(mutator.next());
  }
  std::printf("%llu mutated inputs\n", static_cast<unsigned long long>(runs));
  return 0;
}
