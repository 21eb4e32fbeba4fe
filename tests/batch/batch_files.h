// Helpers of the batch tests: a temporary folder, reading result files, and a mixed input with broken lines.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "batch/runner.h"
#include "io/json.h"

namespace deepinfer::testing {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "deepinfer-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  TempFolder(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::vector<std::string> read_lines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// `count` lines, 20 of them broken (each kind several times), all forms mixed. Every good line carries its
/// own name as a marker in its prompt.
inline std::string mixed_input(int count) {
  const std::vector<std::string> broken = {
      R"({"custom_id": "cut off)",
      R"(not json at all)",
      R"({"custom_id":"url-N","method":"POST","url":"/v1/embeddings","body":{"input":"x"}})",
      R"({"custom_id":"long-N","method":"POST","url":"/v1/completions","body":{"prompt":"LONG"}})",
      R"({"custom_id":"line-7","method":"POST","url":"/v1/completions","body":{"prompt":"again"}})",
      R"({"custom_id":"empty-N","method":"POST","url":"/v1/chat/completions","body":{"messages":[]}})",
      R"({"custom_id":"type-N","method":"POST","url":"/v1/completions","body":{"prompt":"a","temperature":"warm"}})",
      R"({"custom_id":"type2-N","method":"POST","url":"/v1/chat/completions","body":{"messages":"hello"}})",
      R"([1,2,3])",
      R"({"custom_id":"extra-N","method":"POST","url":"/v1/completions","body":{"prompt":"a","max_tokns":3}})",
  };
  std::string out;
  for (int i = 1; i <= count; ++i) {
    if (i % (count / 20) == count / 40) {
      std::string line = broken[static_cast<std::size_t>(i / (count / 20)) % broken.size()];
      if (const std::size_t at = line.find("-N"); at != std::string::npos)
        line.replace(at, 2, fmt::format("-{}", i));
      if (const std::size_t at = line.find("LONG"); at != std::string::npos)
        line.replace(at, 4, std::string(5000, 'x'));
      out += line + "\n";
      continue;
    }
    const std::string marker =
        fmt::format("marker line-{} {}", i, std::string(static_cast<std::size_t>(i * 37 % 200), 'y'));
    switch (i % 4) {
      case 0:
        out += fmt::format(
            R"({{"custom_id":"line-{}","method":"POST","url":"/v1/chat/completions","body":{{"messages":[{{"role":"user","content":"{}"}}],"max_tokens":20}}}})",
            i, marker);
        break;
      case 1:
        out += fmt::format(R"({{"id":"line-{}","prompt":"{}"}})", i, marker);
        break;
      case 2:
        out += fmt::format(R"({{"custom_id":"line-{}","messages":[{{"role":"user","content":"{}"}}],"n":2}})",
                           i, marker);
        break;
      default:
        out += fmt::format(
            R"({{"custom_id":"line-{}","method":"POST","url":"/v1/completions","body":{{"prompt":"{}","temperature":0}}}})",
            i, marker);
    }
    out += "\n";
  }
  return out;
}

inline BatchOptions batch_options(const std::string& input, const std::string& output) {
  BatchOptions options;
  options.input = input;
  options.output = output;
  options.model_name = "fake";
  options.created = 1700000000;
  options.sync_seconds = 0.02;
  return options;
}

}  // namespace deepinfer::testing
