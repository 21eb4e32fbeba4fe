// Reads and checks tokenizer.json. Whatever the file asks for is either done or refused by name.
#include <fmt/format.h>

#include <array>

#include "io/json.h"
#include "io/mmap_file.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_tables.h"
#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {

// Larger files and vocabularies than any real one are damage, not data.
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxVocab = 1 << 24;
constexpr TokenId kUnset = -1;

constexpr std::string_view kModel = "/model", kVocab = "/model/vocab", kMerges = "/model/merges",
                           kAdded = "/added_tokens", kPreTokenizer = "/pre_tokenizer";

const Json* member(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

// A name from the file, fit for an error line.
std::string shown(std::string_view text) {
  constexpr std::size_t kMax = 60;
  std::string out = utf8::to_valid(text.substr(0, kMax));
  if (text.size() > kMax) out += "...";
  return out;
}

class Loader {
 public:
  Result<Tokenizer> load(std::string_view text) {
    const auto parsed = parse_json(text, {.max_bytes = kMaxFileBytes});
    if (!parsed.ok()) return corrupt(parsed.error().message, parsed.error().where);
    const Json& root = *parsed;
    if (!root.is_object()) return corrupt("the file must hold one JSON object");
    DI_TRY(check_normalizer(root));
    const Json* model = member(root, "model");
    if (model == nullptr || !model->is_object()) return corrupt("an object is missing", std::string(kModel));
    DI_TRY(check_model(*model));
    DI_TRY(read_vocab(*model));
    DI_TRY(read_added(root));
    DI_TRY(fill_bytes());
    DI_TRY(read_merges(*model));
    DI_TRY(read_pretokenizer(root));
    DI_TRY(check_decoder(root));
    return finish(flag(*model, "ignore_merges"));
  }

 private:
  static bool flag(const Json& object, const char* name) {
    const Json* value = member(object, name);
    return value != nullptr && value->is_bool() && value->as_bool();
  }

  static std::string type_of(const Json& object) {
    const Json* type = object.is_object() ? member(object, "type") : nullptr;
    return type != nullptr && type->is_string() ? type->as_string() : std::string();
  }

  static Status check_normalizer(const Json& root) {
    const Json* normalizer = member(root, "normalizer");
    if (normalizer == nullptr) return {};
    const std::string type = type_of(*normalizer);
    if (type == "Sequence") {
      const Json* parts = member(*normalizer, "normalizers");
      if (parts != nullptr && parts->is_array() && parts->as_array().empty()) return {};
    }
    return unsupported(
        fmt::format("a normalizer ('{}') is not supported; only null or an empty Sequence is", shown(type)),
        "/normalizer");
  }

  static Status check_model(const Json& model) {
    const std::string type = type_of(model);
    if (!type.empty() && type != "BPE") {
      return unsupported(fmt::format("model type '{}' is not supported; only BPE is", shown(type)),
                         "/model/type");
    }
    if (const Json* dropout = member(model, "dropout");
        dropout != nullptr && !(dropout->is_number() && dropout->as_double() == 0)) {
      return unsupported("BPE dropout is not supported", "/model/dropout");
    }
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json* value = member(model, name);
      if (value != nullptr && (!value->is_string() || !value->as_string().empty())) {
        return unsupported(fmt::format("{} is not supported", name), fmt::format("{}/{}", kModel, name));
      }
    }
    if (flag(model, "byte_fallback")) {
      return unsupported("byte_fallback is not supported; the tokenizer must be byte-level",
                         "/model/byte_fallback");
    }
    return {};
  }

  // Gives `id` to a token whose text is a key of tables_.id_of.
  Status set_token(std::int64_t id, std::string_view text, const std::string& where) {
    if (id < 0 || id >= static_cast<std::int64_t>(tokens_.size())) {
      return corrupt(fmt::format("id {} of token '{}' is out of range: {} tokens need the ids 0 to {}", id,
                                 shown(text), tokens_.size(), static_cast<std::int64_t>(tokens_.size()) - 1),
                     where);
    }
    const std::string*& slot = tokens_[static_cast<std::size_t>(id)];
    if (slot != nullptr) {
      return corrupt(fmt::format("id {} belongs to both '{}' and '{}'", id, shown(*slot), shown(text)),
                     where);
    }
    const auto entry = tables_.id_of.find(text);
    entry->second = static_cast<TokenId>(id);
    slot = &entry->first;
    return {};
  }

  // Texts only: the range of ids is known when the added tokens have been counted.
  Status read_vocab(const Json& model) {
    const Json* vocab = member(model, "vocab");
    if (vocab == nullptr || !vocab->is_object()) return corrupt("an object is missing", std::string(kVocab));
    vocab_ = &vocab->as_object();
    if (vocab_->empty() || vocab_->size() > kMaxVocab) {
      return corrupt(fmt::format("{} entries; between 1 and {} are expected", vocab_->size(), kMaxVocab),
                     std::string(kVocab));
    }
    tables_.id_of.reserve(vocab_->size());
    for (const auto& [text, id] : *vocab_) {
      if (text.empty()) return corrupt("a token has no text", std::string(kVocab));
      if (!is_integer(id)) {
        return corrupt(fmt::format("the id of '{}' is not a whole number", shown(text)), std::string(kVocab));
      }
      tables_.id_of.emplace(text, kUnset);
    }
    return {};
  }

  // Base and added tokens share one range of ids without holes; an added token may repeat a base token.
  Status read_added(const Json& root) {
    static const JsonArray none;
    const Json* member_value = member(root, "added_tokens");
    if (member_value != nullptr && !member_value->is_array()) {
      return corrupt("an array is expected", std::string(kAdded));
    }
    const JsonArray& list = member_value == nullptr ? none : member_value->as_array();
    if (list.size() > kMaxVocab) return corrupt("too many entries", std::string(kAdded));
    for (std::size_t i = 0; i < list.size(); ++i) {
      DI_TRY(check_added(list[i], fmt::format("{}/{}", kAdded, i)));
      tables_.id_of.emplace(member(list[i], "content")->as_string(), kUnset);
    }
    tokens_.resize(tables_.id_of.size(), nullptr);
    base_.assign(tokens_.size(), false);
    tables_.added.assign(tokens_.size(), false);
    tables_.special.assign(tokens_.size(), false);
    for (const auto& [text, id] : *vocab_) {
      DI_TRY(set_token(as_int64(id), text, std::string(kVocab)));
      base_[static_cast<std::size_t>(as_int64(id))] = true;
    }
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string where = fmt::format("{}/{}", kAdded, i);
      const std::string& text = member(list[i], "content")->as_string();
      const std::int64_t id = as_int64(*member(list[i], "id"));
      const TokenId known = tables_.id_of.find(text)->second;
      if (known == kUnset) {
        DI_TRY(set_token(id, text, where));
      } else if (known != id) {
        return corrupt(fmt::format("token '{}' has the ids {} and {}", shown(text), known, id), where);
      } else if (tables_.added[static_cast<std::size_t>(id)]) {
        return corrupt(fmt::format("token '{}' appears twice", shown(text)), where);
      }
      tables_.added[static_cast<std::size_t>(id)] = true;
      tables_.special[static_cast<std::size_t>(id)] = flag(list[i], "special");
      (flag(list[i], "normalized") ? tables_.normalized_added : tables_.raw_added)
          .add(text, static_cast<TokenId>(id));
    }
    return {};
  }

  static Status check_added(const Json& item, const std::string& where) {
    const Json* content = member(item, "content");
    const Json* id = member(item, "id");
    if (content == nullptr || !content->is_string() || content->as_string().empty()) {
      return corrupt("'content' must be a text of at least one character", where);
    }
    if (id == nullptr || !is_integer(*id)) return corrupt("'id' must be a whole number", where);
    for (const char* name : {"single_word", "lstrip", "rstrip"}) {
      if (!flag(item, name)) continue;
      return unsupported(
          fmt::format("added token '{}' sets {}, which is not supported", shown(content->as_string()), name),
          where);
    }
    return {};
  }

  static bool is_integer(const Json& value) { return value.is_int() || value.kind() == Json::Kind::kUint; }

  // Values beyond 63 bits come back as -1, which is out of range everywhere.
  static std::int64_t as_int64(const Json& value) { return value.is_int() ? value.as_int() : -1; }

  // Token text -> bytes. A base token with a character outside the byte alphabet stands for its own UTF-8, as
  // a token that is only added does.
  Status fill_bytes() {
    std::array<bool, 256> have{};
    std::string bytes;
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      const std::string& text = *tokens_[id];
      bytes.clear();
      bool in_alphabet = base_[id];
      for (const char* p = text.data(); in_alphabet && p != text.data() + text.size();) {
        const int byte = byte_of_alphabet(utf8::decode_trusted(p));
        if (byte < 0) {
          in_alphabet = false;
        } else {
          bytes.push_back(static_cast<char>(byte));
        }
      }
      if (!in_alphabet) bytes = text;
      tables_.texts.push_back(text);
      tables_.bytes.push_back(bytes);
      if (in_alphabet && bytes.size() == 1) {
        have[static_cast<unsigned char>(bytes[0])] = true;
        byte_tokens_[static_cast<unsigned char>(bytes[0])] = static_cast<TokenId>(id);
      }
      if (in_alphabet) words_.push_back(static_cast<TokenId>(id));
    }
    std::string missing;
    int count = 0;
    for (int b = 0; b < 256; ++b) {
      if (have[static_cast<std::size_t>(b)]) continue;
      if (++count <= 5) missing += fmt::format(" 0x{:02X}", b);
    }
    if (count == 0) return {};
    return corrupt(fmt::format("{} of the 256 single-byte tokens are missing:{}{}", count, missing,
                               count > 5 ? " ..." : ""),
                   std::string(kVocab));
  }

  // Both spellings: "left right" and ["left", "right"].
  Status read_merges(const Json& model) {
    const Json* list = member(model, "merges");
    if (list == nullptr || !list->is_array()) return corrupt("an array is missing", std::string(kMerges));
    const JsonArray& lines = list->as_array();
    merges_.reserve(lines.size());
    std::unordered_map<std::uint64_t, std::size_t> seen;
    seen.reserve(lines.size());
    std::string merged;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const Json& item = lines[i];
      const auto here = [&] { return fmt::format("{}/{}", kMerges, i); };
      std::string_view left, right;
      if (item.is_string()) {
        const std::string_view line = item.as_string();
        const std::size_t space = line.find(' ');
        if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
          return corrupt("a merge is two tokens with one space between them", here());
        }
        left = line.substr(0, space);
        right = line.substr(space + 1);
      } else if (item.is_array() && item.as_array().size() == 2 && item.as_array()[0].is_string() &&
                 item.as_array()[1].is_string()) {
        left = item.as_array()[0].as_string();
        right = item.as_array()[1].as_string();
      } else {
        return corrupt("a merge is \"left right\" or [\"left\", \"right\"]", here());
      }
      merged.assign(left);
      merged += right;
      Merge merge;
      // Every token has text, so a merge is always longer than its parts and no chain of merges can be a
      // cycle.
      for (const auto& [text, id] : {std::pair(left, &merge.left), std::pair(right, &merge.right),
                                     std::pair(std::string_view(merged), &merge.merged)}) {
        const auto it = tables_.id_of.find(text);
        if (it == tables_.id_of.end()) {
          return corrupt(fmt::format("token '{}' is not in the vocabulary", shown(text)), here());
        }
        *id = it->second;
      }
      const std::uint64_t pair =
          static_cast<std::uint64_t>(merge.left) << 32 | static_cast<std::uint32_t>(merge.right);
      const auto [it, fresh] = seen.emplace(pair, i);
      if (!fresh) return corrupt(fmt::format("the same merge as number {}", it->second), here());
      merges_.push_back(merge);
    }
    return {};
  }

  Status read_pretokenizer(const Json& root) {
    const Json* top = member(root, "pre_tokenizer");
    if (top == nullptr) {
      return unsupported("there is no pre-tokenizer; a ByteLevel one is needed", std::string(kPreTokenizer));
    }
    std::vector<std::pair<const Json*, std::string>> parts;
    if (type_of(*top) == "Sequence") {
      const Json* list = member(*top, "pretokenizers");
      if (list == nullptr || !list->is_array())
        return corrupt("'pretokenizers' must be an array", std::string(kPreTokenizer));
      for (std::size_t i = 0; i < list->as_array().size(); ++i) {
        parts.emplace_back(&list->as_array()[i], fmt::format("{}/pretokenizers/{}", kPreTokenizer, i));
      }
    } else {
      parts.emplace_back(top, std::string(kPreTokenizer));
    }
    bool byte_level = false;
    std::vector<std::string> patterns;
    for (const auto& [part, where] : parts) {
      const std::string type = type_of(*part);
      if (byte_level)
        return unsupported(fmt::format("pre-tokenizer '{}' after ByteLevel is not supported", shown(type)),
                           where);
      if (type == "Split") {
        DI_TRY(read_split(*part, where, patterns));
      } else if (type == "ByteLevel") {
        byte_level = true;
        // These two default to true in the format.
        if (member(*part, "add_prefix_space") == nullptr || flag(*part, "add_prefix_space")) {
          return unsupported("ByteLevel with add_prefix_space is not supported", where);
        }
        if (member(*part, "use_regex") == nullptr || flag(*part, "use_regex"))
          patterns.emplace_back(kByteLevelPattern);
      } else {
        return unsupported(
            fmt::format("pre-tokenizer '{}' is not supported; Split and ByteLevel are", shown(type)), where);
      }
    }
    if (!byte_level) return unsupported("a ByteLevel pre-tokenizer is needed", std::string(kPreTokenizer));
    auto made = PreTokenizer::create(std::move(patterns));
    if (!made.ok()) return made.error().at(std::string(kPreTokenizer));
    tables_.pretokenizer = std::move(made).value();
    return {};
  }

  static Status read_split(const Json& part, const std::string& where, std::vector<std::string>& patterns) {
    const Json* behavior = member(part, "behavior");
    if (behavior == nullptr || !behavior->is_string()) return corrupt("'behavior' must be a text", where);
    if (behavior->as_string() != "Isolated") {
      return unsupported(
          fmt::format("Split behavior '{}' is not supported; Isolated is", shown(behavior->as_string())),
          where);
    }
    // "invert" swaps matches and gaps; isolating splits keep both, so it changes nothing.
    const Json* pattern = member(part, "pattern");
    const Json* regex = pattern != nullptr && pattern->is_object() ? member(*pattern, "Regex") : nullptr;
    const Json* text = pattern != nullptr && pattern->is_object() ? member(*pattern, "String") : nullptr;
    if (regex != nullptr && regex->is_string()) {
      patterns.push_back(regex->as_string());
    } else if (text != nullptr && text->is_string() && !text->as_string().empty()) {
      patterns.push_back(quote_pattern(text->as_string()));
    } else {
      return corrupt("'pattern' must be {\"Regex\": text} or {\"String\": text}", where);
    }
    return {};
  }

  static Status check_decoder(const Json& root) {
    const Json* decoder = member(root, "decoder");
    if (decoder == nullptr || type_of(*decoder) == "ByteLevel") return {};
    return unsupported(fmt::format("decoder '{}' is not supported; ByteLevel is", shown(type_of(*decoder))),
                       "/decoder");
  }

  Tokenizer finish(bool ignore_merges) {
    tables_.bpe = Bpe(merges_, byte_tokens_, tables_.bytes, words_, ignore_merges);
    return TokenizerBuilder::finish(std::move(tables_));
  }

  TokenizerBuilder::Tables tables_;
  const JsonObject* vocab_ = nullptr;
  std::vector<bool> base_;                  // by id: in /model/vocab
  std::vector<const std::string*> tokens_;  // by id; keys of tables_.id_of, which do not move
  std::array<TokenId, 256> byte_tokens_{};
  std::vector<TokenId> words_;
  std::vector<Merge> merges_;
};

}  // namespace

int byte_of_alphabet(char32_t code_point) {
  // Printable Latin-1 stands for itself; the other 68 bytes, in order, are U+0100 and up.
  const auto printable = [](char32_t c) {
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xFF && c != 0xAD);
  };
  if (code_point <= 0xFF) return printable(code_point) ? static_cast<int>(code_point) : -1;
  static const std::array<int, 68> others = [&] {
    std::array<int, 68> out{};
    std::size_t n = 0;
    for (char32_t b = 0; b < 256; ++b) {
      if (!printable(b)) out[n++] = static_cast<int>(b);
    }
    return out;
  }();
  const char32_t index = code_point - 0x100;
  return index < others.size() ? others[index] : -1;
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& name) {
  auto loaded = Loader().load(json);
  if (!loaded.ok()) return loaded.error().at(name);
  return loaded;
}

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  DI_ASSIGN(const MmapFile file, MmapFile::open(path));
  return parse(file.text(), path);
}

}  // namespace deepinfer
