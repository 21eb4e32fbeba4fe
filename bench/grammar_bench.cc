// Compile and mask times, verdicts and memory of JSON Schema constraints over a real vocabulary.
// usage: grammar_bench [SCHEMAS.jsonl [TOKENIZER.json]]   (default: maskbench-sample.jsonl and tokenizers/deepseek_v3 under
// $DEEPINFER_EXTRA_DATA) A line holds {"name", "schema", "tests": [{"valid", "data"}]}.
// Every instance is written as JSON with ", " and ": ", cut by the tokenizer, and pushed token by token: mask, check,
// accept. Times are CPU time of one thread, each mask computed once, in the order of the file: caches are as warm as earlier
// schemas left them.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::grammar;
using Json = nlohmann::ordered_json;

double now_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

void write(const Json& j, std::string& out) {
  if (j.is_object()) {
    out += '{';
    bool first = true;
    for (const auto& [key, value] : j.items()) {
      if (!first) out += ", ";
      first = false;
      out += Json(key).dump() + ": ";
      write(value, out);
    }
    out += '}';
  } else if (j.is_array()) {
    out += '[';
    bool first = true;
    for (const auto& value : j) {
      if (!first) out += ", ";
      first = false;
      write(value, out);
    }
    out += ']';
  } else {
    out += j.dump();
  }
}

VocabularyPtr make_vocabulary(const Tokenizer& tokenizer) {
  Vocabulary::Options o;
  for (std::int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto t = static_cast<grammar::TokenId>(id);
    o.tokens.emplace_back(tokenizer.token_bytes(t));
    if (tokenizer.is_added(t)) o.special_tokens.push_back(t);
  }
  o.eos_tokens = {1};
  o.logits_width = (o.tokens.size() + 127) / 128 * 128;
  return Vocabulary::create(std::move(o)).value();
}

double percentile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(q * static_cast<double>(values.size())))];
}

void print_row(const char* what, std::vector<double>& v, double scale) {
  std::printf("%-22s %9.1f %9.1f %9.1f %9.1f %9.1f   (%zu)\n", what, percentile(v, 0.5) * scale, percentile(v, 0.9) * scale,
              percentile(v, 0.99) * scale, percentile(v, 0.999) * scale, percentile(v, 1.0) * scale, v.size());
}

}  // namespace

int main(int argc, char** argv) {
  const char* extra = std::getenv("DEEPINFER_EXTRA_DATA");
  const std::string base = extra != nullptr ? extra : ".";
  const std::string schemas = argc > 1 ? argv[1] : base + "/testsuites/maskbench-sample.jsonl";
  const std::string tokenizer_path = argc > 2 ? argv[2] : base + "/tokenizers/deepseek_v3/tokenizer.json";
  const bool verbose = std::getenv("GRAMMAR_BENCH_VERBOSE") != nullptr;
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_path).value();
  const VocabularyPtr vocabulary = make_vocabulary(tokenizer);
  std::ifstream in(schemas);
  if (!in.good()) {
    std::fprintf(stderr, "grammar_bench: cannot read %s\n", schemas.c_str());
    return 1;
  }
  std::vector<double> compile_us, mask_us, accept_us, memory_bytes;
  std::size_t total = 0, supported = 0, clean = 0, false_accepts = 0, false_rejects = 0, valid = 0, invalid = 0, mask_disagrees = 0, errors = 0;
  std::map<std::string, int> refusals;
  std::vector<std::uint32_t> mask(vocabulary->mask_words());
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    const Json entry = Json::parse(line);
    const std::string name = entry["name"], schema = entry["schema"].dump();
    ++total;
    const double begin = now_us();
    GrammarBuilder builder;
    const auto start = add_json_schema(builder, schema, SchemaOptions{});
    Result<GrammarPtr> made = Error{};
    if (start.ok()) {
      builder.set_start(start.value());
      made = compile(std::move(builder), vocabulary);
    } else {
      made = start.error();
    }
    compile_us.push_back(now_us() - begin);
    if (verbose && compile_us.back() > 20'000) std::printf("slow compile %s %.1f ms\n", name.c_str(), compile_us.back() / 1e3);
    if (!made.ok()) {
      ++refusals[made.error().message.substr(0, 70)];
      if (verbose) std::printf("refused %s: %s\n", name.c_str(), made.error().to_string().c_str());
      continue;
    }
    ++supported;
    bool right = true;
    for (const auto& test : entry["tests"]) {
      std::string text;
      write(test["data"], text);
      const bool want = test["valid"];
      ++(want ? valid : invalid);
      Matcher m(made.value());
      bool accepted = true;
      for (const auto id : tokenizer.encode(text)) {
        const auto t = static_cast<grammar::TokenId>(id);
        double at = now_us();
        const Status s = m.compute_mask(mask);
        mask_us.push_back(now_us() - at);
        if (verbose && mask_us.back() > 1000) std::printf("slow mask %s step %zu %.0f us\n", name.c_str(), m.step_count(), mask_us.back());
        if (!s.ok()) {
          ++errors;
          if (verbose) std::printf("error %s: %s\n", name.c_str(), s.error().to_string().c_str());
        }
        at = now_us();
        const Status a = m.accept_token(t);
        accept_us.push_back(now_us() - at);
        const bool bit = s.ok() && ((mask[static_cast<std::size_t>(t) >> 5] >> (t & 31)) & 1) != 0;
        if (bit != a.ok()) ++mask_disagrees;
        if (!a.ok()) {
          accepted = false;
          break;
        }
      }
      accepted = accepted && m.is_accepting();
      if (accepted != want) {
        right = false;
        ++(want ? false_rejects : false_accepts);
        if (verbose) std::printf("%s %s: %s\n", want ? "false reject" : "false accept", name.c_str(), text.substr(0, 200).c_str());
      }
    }
    clean += right;
    memory_bytes.push_back(static_cast<double>(made.value()->memory_bytes()));
  }
  std::printf("%zu schemas, %zu supported (%.1f %%), %zu with every verdict right; %zu valid and %zu invalid instances: "
              "%zu false rejects, %zu false accepts; mask and accept disagree %zu times; %zu mask errors\n",
              total, supported, 100.0 * static_cast<double>(supported) / static_cast<double>(std::max<std::size_t>(1, total)), clean, valid,
              invalid, false_rejects, false_accepts, mask_disagrees, errors);
  std::printf("%-22s %9s %9s %9s %9s %9s   (count)\n", "", "p50", "p90", "p99", "p99.9", "max");
  print_row("compile, us", compile_us, 1);
  print_row("mask, us", mask_us, 1);
  print_row("accept, us", accept_us, 1);
  print_row("grammar memory, KiB", memory_bytes, 1.0 / 1024);
  std::printf("grammar memory p95 %.0f KiB; shared mask store %.1f MiB, %zu evictions\n", percentile(memory_bytes, 0.95) / 1024,
              static_cast<double>(vocabulary->mask_store().memory_bytes()) / 1048576, vocabulary->mask_store().eviction_count());
  std::vector<std::pair<int, std::string>> by_count;
  for (const auto& [what, count] : refusals) by_count.emplace_back(count, what);
  std::sort(by_count.rbegin(), by_count.rend());
  for (std::size_t i = 0; i < std::min<std::size_t>(by_count.size(), 25); ++i) std::printf("  refused %3d: %s\n", by_count[i].first, by_count[i].second.c_str());
  return 0;
}
