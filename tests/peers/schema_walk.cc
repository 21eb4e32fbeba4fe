// Random walks through the masks of schemas, for check_generated.py:
//   schema_walk FILE.jsonl SEED WALKS
// A line of FILE has a "schema". For each schema that compiles, WALKS texts are written, one JSON line each:
// {"line": n, "text": "..."}; a text that did not end within its budget is left out. Schemas in strict mode
// only.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "io/json.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::grammar;

VocabularyPtr bytes() {
  Vocabulary::Options options;
  for (int b = 0; b < 256; ++b) options.tokens.emplace_back(1, static_cast<char>(b));
  options.tokens.emplace_back();
  options.special_tokens = options.eos_tokens = {256};
  return Vocabulary::create(std::move(options)).value();
}

// Uniform at first; later whatever closes things, so that walks end.
bool walk(const GrammarPtr& grammar, std::mt19937& rng, std::string& text) {
  Matcher matcher(grammar);
  std::vector<std::uint32_t> mask(grammar->vocabulary()->mask_words());
  const auto allowed = [&](int b) { return (mask[static_cast<std::size_t>(b) / 32] >> (b % 32) & 1) != 0; };
  for (int step = 0; step < 4000; ++step) {
    if (matcher.is_complete() || (matcher.is_accepting() && rng() % 4 == 0)) return true;
    if (const Status status = matcher.compute_mask(mask); !status.ok()) {
      std::fprintf(stderr, "%s after %s in this schema:\n", status.error().to_string().c_str(), text.c_str());
      return false;
    }
    int pick = -1;
    if (step > 60 || rng() % 3 == 0) {
      for (const char c : {'"', ']', '}', ':', ','}) {
        if (pick < 0 && allowed(static_cast<unsigned char>(c)) && rng() % 8 != 0)
          pick = static_cast<unsigned char>(c);
      }
    }
    if (pick < 0) {
      std::vector<int> all, plain;
      for (int b = 0; b < 256; ++b) {
        if (!allowed(b)) continue;
        all.push_back(b);
        if (b > 32 && b < 127) plain.push_back(b);
      }
      if (all.empty()) return matcher.is_accepting();
      const auto& from = plain.empty() || rng() % 10 == 0 ? all : plain;
      pick = from[rng() % from.size()];
    }
    if (!matcher.accept_token(pick).ok()) return false;
    text += static_cast<char>(pick);
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "schema_walk FILE.jsonl SEED WALKS\n"), 2;
  std::mt19937 rng(static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10)));
  const VocabularyPtr vocabulary = bytes();
  std::ifstream in(argv[1]);
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line); ++number) {
    const auto parsed = parse_json(line);
    if (!parsed.ok()) continue;
    const auto grammar = compile_json_schema(to_json_text(*parsed->find("schema")), vocabulary);
    if (!grammar.ok()) continue;
    for (int i = 0; i < std::atoi(argv[3]); ++i) {
      std::string text;
      if (!walk(*grammar, rng, text)) continue;  // stderr says why when it was not the budget
      Json out = Json::object();
      out.set("line", number).set("text", text);
      std::printf("%s\n", to_json_text(out).c_str());
    }
  }
  return 0;
}
