// A damaged or unsupported tokenizer.json gives one clear error with its place, never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string demo_text() {
  std::ifstream file("models/demo-v41/tokenizer.json");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// 256 byte tokens, one merge, one added token: small enough to damage often.
json small_spec() {
  json spec = json::parse(demo_text());
  json vocab = json::object(), merges = json::array({json::array({"h", "e"})});
  const auto& full = spec["model"]["vocab"];
  std::int64_t next = 0;
  const Tokenizer demo = Tokenizer::load("models/demo-v41/tokenizer.json").value();
  for (const auto& [text, id] : full.items()) {
    if (demo.token_bytes(id.get<TokenId>()).size() == 1) vocab[text] = next++;
  }
  vocab["he"] = next++;
  spec["model"]["vocab"] = vocab;
  spec["model"]["merges"] = merges;
  spec["added_tokens"] =
      json::array({json{{"id", next}, {"content", "<x>"}, {"special", true}, {"normalized", false}}});
  return spec;
}

struct Case {
  const char* name;
  std::function<void(json&)> damage;
  ErrorCode code;
  const char* message;
  const char* where;
};

TEST(TokenizerDamage, TheUndamagedFileLoads) {
  const auto t = Tokenizer::parse(small_spec().dump());
  ASSERT_TRUE(t.ok()) << t.error().to_string();
  EXPECT_EQ(t->vocab_size(), 258);
  EXPECT_EQ(t->encode("hey<x>", {.parse_special = true}).size(), 3u);
}

TEST(TokenizerDamage, EachDamageIsNamed) {
  const auto corrupt = ErrorCode::kCorrupt;
  const auto refused = ErrorCode::kUnsupported;
  const std::vector<Case> cases = {
      {"no model", [](json& s) { s.erase("model"); }, corrupt, "object is missing", "/model"},
      {"model is a list", [](json& s) { s["model"] = json::array(); }, corrupt, "object is missing",
       "/model"},
      {"no vocab", [](json& s) { s["model"].erase("vocab"); }, corrupt, "object is missing", "/model/vocab"},
      {"vocab is a list", [](json& s) { s["model"]["vocab"] = {1}; }, corrupt, "object is missing",
       "/model/vocab"},
      {"vocab is empty", [](json& s) { s["model"]["vocab"] = json::object(); }, corrupt, "0 entries",
       "/model/vocab"},
      {"duplicate id", [](json& s) { s["model"]["vocab"]["he"] = 7; }, corrupt, "belongs to both",
       "/model/vocab"},
      {"negative id", [](json& s) { s["model"]["vocab"]["he"] = -1; }, corrupt, "out of range",
       "/model/vocab"},
      {"huge id", [](json& s) { s["model"]["vocab"]["he"] = 1e6; }, corrupt, "not a whole number",
       "/model/vocab"},
      {"id beyond 63 bits", [](json& s) { s["model"]["vocab"]["he"] = 18446744073709551615u; }, corrupt,
       "out of range", "/model/vocab"},
      {"id out of range", [](json& s) { s["model"]["vocab"]["he"] = 1000; }, corrupt, "out of range",
       "/model/vocab"},
      {"id is text", [](json& s) { s["model"]["vocab"]["he"] = "7"; }, corrupt, "not a whole number",
       "/model/vocab"},
      {"empty token", [](json& s) { s["model"]["vocab"][""] = 258; }, corrupt, "no text", "/model/vocab"},
      {"missing byte token",
       [](json& s) {
         auto& v = s["model"]["vocab"];
         v["zz"] = v["z"];
         v.erase("z");
       },
       corrupt, "0x7A", "/model/vocab"},
      {"merges missing", [](json& s) { s["model"].erase("merges"); }, corrupt, "array is missing",
       "/model/merges"},
      {"merge of unknown token", [](json& s) { s["model"]["merges"] = {"he y"}; }, corrupt,
       "'hey' is not in the vocabulary", "/model/merges/0"},
      {"merge with one part", [](json& s) { s["model"]["merges"] = {"he"}; }, corrupt, "two tokens",
       "/model/merges/0"},
      {"merge with three parts", [](json& s) { s["model"]["merges"] = {"h e y"}; }, corrupt, "two tokens",
       "/model/merges/0"},
      {"merge with an empty part", [](json& s) { s["model"]["merges"] = {" he"}; }, corrupt,
       "'' is not in the vocabulary", "/model/merges/0"},
      {"merge into itself",
       [](json& s) {
         s["model"]["merges"] = json::array({json::array({"he", ""})});
       },
       corrupt, "'' is not", "/model/merges/0"},
      {"merge of numbers",
       [](json& s) {
         s["model"]["merges"] = json::array({json::array({1, 2})});
       },
       corrupt, "a merge is", "/model/merges/0"},
      {"merge twice",
       [](json& s) {
         s["model"]["merges"] = {"h e", "h e"};
       },
       corrupt, "same merge as number 0", "/model/merges/1"},
      {"added tokens of wrong type", [](json& s) { s["added_tokens"] = "x"; }, corrupt, "array",
       "/added_tokens"},
      {"added token without content", [](json& s) { s["added_tokens"][0].erase("content"); }, corrupt,
       "'content'", "/added_tokens/0"},
      {"added token is a number", [](json& s) { s["added_tokens"][0] = 5; }, corrupt, "'content'",
       "/added_tokens/0"},
      {"added token without id", [](json& s) { s["added_tokens"][0].erase("id"); }, corrupt, "'id'",
       "/added_tokens/0"},
      {"added id taken", [](json& s) { s["added_tokens"][0]["id"] = 3; }, corrupt, "belongs to both",
       "/added_tokens/0"},
      {"added id out of range", [](json& s) { s["added_tokens"][0]["id"] = 3000; }, corrupt, "out of range",
       "/added_tokens/0"},
      {"added token with another id",
       [](json& s) {
         s["added_tokens"][0]["content"] = "he";
         s["added_tokens"][0]["id"] = 3;
       },
       corrupt, "has the ids", "/added_tokens/0"},
      {"added token twice", [](json& s) { s["added_tokens"].push_back(s["added_tokens"][0]); }, corrupt, "",
       "/added_tokens"},
      {"added token strips", [](json& s) { s["added_tokens"][0]["lstrip"] = true; }, refused, "lstrip",
       "/added_tokens/0"},
      {"added token single word", [](json& s) { s["added_tokens"][0]["single_word"] = true; }, refused,
       "single_word", "/added_tokens/0"},
      {"normalizer",
       [](json& s) {
         s["normalizer"] = {{"type", "NFC"}};
       },
       refused, "'NFC'", "/normalizer"},
      {"normalizer sequence",
       [](json& s) {
         s["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
       },
       refused, "normalizer", "/normalizer"},
      {"other model", [](json& s) { s["model"]["type"] = "Unigram"; }, refused, "'Unigram'", "/model/type"},
      {"dropout", [](json& s) { s["model"]["dropout"] = 0.1; }, refused, "dropout", "/model/dropout"},
      {"suffix", [](json& s) { s["model"]["end_of_word_suffix"] = "</w>"; }, refused, "end_of_word_suffix",
       "/model"},
      {"byte fallback", [](json& s) { s["model"]["byte_fallback"] = true; }, refused, "byte_fallback",
       "/model"},
      {"no pre-tokenizer", [](json& s) { s["pre_tokenizer"] = nullptr; }, refused, "no pre-tokenizer",
       "/pre_tokenizer"},
      {"other pre-tokenizer",
       [](json& s) {
         s["pre_tokenizer"] = {{"type", "Metaspace"}};
       },
       refused, "'Metaspace'", "/pre_tokenizer"},
      {"other behavior", [](json& s) { s["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; },
       refused, "'Removed'", "/pre_tokenizer/pretokenizers/0"},
      {"bad pattern", [](json& s) { s["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "("; },
       corrupt, "does not compile", "/pre_tokenizer"},
      {"pattern of wrong type", [](json& s) { s["pre_tokenizer"]["pretokenizers"][0]["pattern"] = 5; },
       corrupt, "'pattern'", "/pre_tokenizer/pretokenizers/0"},
      {"prefix space", [](json& s) { s["pre_tokenizer"]["pretokenizers"][3]["add_prefix_space"] = true; },
       refused, "add_prefix_space", "/pre_tokenizer/pretokenizers/3"},
      {"splits without bytes", [](json& s) { s["pre_tokenizer"]["pretokenizers"].erase(3); }, refused,
       "ByteLevel", "/pre_tokenizer"},
      {"other decoder",
       [](json& s) {
         s["decoder"] = {{"type", "Metaspace"}};
       },
       refused, "'Metaspace'", "/decoder"},
  };
  const json good = small_spec();
  for (const Case& c : cases) {
    json spec = good;
    c.damage(spec);
    const auto t = Tokenizer::parse(spec.dump(), "file.json");
    ASSERT_FALSE(t.ok()) << c.name;
    EXPECT_EQ(t.error().code, c.code) << c.name << ": " << t.error().to_string();
    EXPECT_THAT(t.error().message, HasSubstr(c.message)) << c.name;
    EXPECT_THAT(t.error().where, HasSubstr(std::string("file.json: ") + c.where))
        << c.name << ": " << t.error().to_string();
  }
}

TEST(TokenizerDamage, DuplicateVocabularyKeysAreNoticed) {
  std::string text = small_spec().dump();
  const std::string key = "\"he\":";
  text.insert(text.find(key), "\"he\":0,");
  const auto t = Tokenizer::parse(text);
  ASSERT_FALSE(t.ok());
  EXPECT_THAT(t.error().message, HasSubstr("\"he\" appears twice"));
}

TEST(TokenizerDamage, EveryTruncationIsAnError) {
  const std::string text = small_spec().dump();
  for (std::size_t size = 0; size < text.size(); size += 7) {
    const auto t = Tokenizer::parse(std::string_view(text).substr(0, size));
    ASSERT_FALSE(t.ok()) << size;
    ASSERT_EQ(t.error().code, ErrorCode::kCorrupt) << size;
  }
  const auto empty = Tokenizer::parse("[]");
  ASSERT_FALSE(empty.ok());
}

TEST(TokenizerDamage, DeepNestingIsAnErrorNotAStackOverflow) {
  const auto t = Tokenizer::parse(std::string(2000000, '['));
  ASSERT_FALSE(t.ok());
}

TEST(TokenizerDamage, AMissingFileIsSaidToBeMissing) {
  const auto t = Tokenizer::load("models/no-such-model/tokenizer.json");
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.error().code, ErrorCode::kNotFound);
  const auto folder = Tokenizer::load("models");
  ASSERT_FALSE(folder.ok());
}

}  // namespace
}  // namespace deepinfer
