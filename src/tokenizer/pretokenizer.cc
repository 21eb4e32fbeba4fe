#include "tokenizer/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>

namespace deepinfer {
namespace {

// The three patterns with \r, \n and \" written as the characters themselves (files differ in that).
constexpr std::array<std::string_view, 3> kDeepSeekPatterns = {
    "\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"};

std::string plain_escapes(std::string_view pattern) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '\\' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'r' || next == 'n' || next == '"') {
      out += next == 'r' ? '\r' : next == 'n' ? '\n' : '"';
      ++i;
    } else if (next != '\0') {
      out += pattern[i];
      out += pattern[++i];
    } else {
      out += pattern[i];
    }
  }
  return out;
}

bool is_deepseek(const std::vector<std::string>& patterns) {
  if (patterns.size() != kDeepSeekPatterns.size()) return false;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (plain_escapes(patterns[i]) != kDeepSeekPatterns[i]) return false;
  }
  return true;
}

// One pass over an Oniguruma pattern that rewrites what means something else to PCRE2 and refuses the rest.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        DI_TRY(escape());
      } else if (in_class_) {
        DI_TRY(class_character(c));
      } else {
        DI_TRY(character(c));
      }
    }
    return std::move(out_);
  }

 private:
  Error refuse(std::string_view construct) const {
    return unsupported(
        fmt::format("the pattern uses '{}', which is not supported in split patterns", construct),
        std::string(pattern_));
  }
  bool looking_at(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void copy(std::size_t count) {
    out_.append(pattern_.substr(at_, count));
    at_ += count;
  }

  Status escape() {
    if (at_ + 1 == pattern_.size()) return corrupt("the pattern ends in a backslash", std::string(pattern_));
    class_is_empty_ = false;
    const char c = pattern_[at_ + 1];
    const bool letter_or_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter_or_digit || c == 'r' || c == 'n' || c == 't' || c == 'f' || c == 'd' || c == 'D' ||
        c == 'x' || c == 'p' || c == 'P') {
      copy(2);
      return {};
    }
    std::string_view replacement;
    if (c == 's') {
      replacement = "\\p{White_Space}";
    } else if (c == 'S') {
      replacement = "\\P{White_Space}";
    } else if (c == 'w') {
      replacement = in_class_ ? "\\p{L}\\p{M}\\p{N}\\p{Pc}" : "[\\p{L}\\p{M}\\p{N}\\p{Pc}]";
    } else if (c == 'W' && !in_class_) {
      replacement = "[^\\p{L}\\p{M}\\p{N}\\p{Pc}]";
    } else {
      return refuse(pattern_.substr(at_, 2));
    }
    out_.append(replacement);
    at_ += 2;
    return {};
  }

  Status class_character(char c) {
    if (c == '[') return refuse("[ inside [...]");
    if (looking_at("&&")) return refuse("&& inside [...]");
    if (c == ']' && !class_is_empty_) in_class_ = false;
    class_is_empty_ = false;
    copy(1);
    return {};
  }

  Status character(char c) {
    if (c == '^' || c == '$') return refuse(std::string_view(&c, 1));
    if (c == '[') {
      in_class_ = class_is_empty_ = true;
      copy(looking_at("[^") ? 2 : 1);
      return {};
    }
    if (looking_at("(?")) {
      for (std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?>"}) {
        if (!looking_at(known)) continue;
        copy(known.size());
        return {};
      }
      return refuse(pattern_.substr(at_, 4));
    }
    if (looking_at("(*")) return refuse("(*");
    copy(1);
    return {};
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::string out_;
  bool in_class_ = false;
  bool class_is_empty_ = false;  // right behind [ or [^, where ] is an ordinary character
};

struct MatchDataDeleter {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};

}  // namespace

const char* const kByteLevelPattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

Result<std::string> translate_pattern(std::string_view pattern) {
  return Translator(pattern).run();
}

std::string quote_pattern(std::string_view text) {
  std::string out;
  for (char c : text) {
    const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!word && static_cast<unsigned char>(c) < 0x80) out += '\\';
    out += c;
  }
  return out;
}

struct PreTokenizer::Regex {
  pcre2_code* code = nullptr;
  ~Regex() { pcre2_code_free(code); }
};

Result<PreTokenizer> PreTokenizer::create(std::vector<std::string> patterns, Engine engine) {
  PreTokenizer out;
  if (engine == Engine::kAuto && is_deepseek(patterns)) {
    out.scan_ = true;
    return out;
  }
  for (const std::string& pattern : patterns) {
    DI_ASSIGN(const std::string translated, translate_pattern(pattern));
    auto regex = std::make_shared<Regex>();
    int code = 0;
    PCRE2_SIZE offset = 0;
    regex->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C,
                                &code, &offset, nullptr);
    if (regex->code == nullptr) {
      std::array<PCRE2_UCHAR, 256> text{};
      pcre2_get_error_message(code, text.data(), text.size());
      return corrupt(
          fmt::format("the split pattern does not compile: {}", reinterpret_cast<const char*>(text.data())),
          pattern);
    }
    // Without JIT on this machine the interpreter takes over: slower, same matches.
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    out.stages_.push_back(std::move(regex));
  }
  return out;
}

void PreTokenizer::split(std::size_t stage, std::string_view text, const EmitFunction& emit) const {
  if (text.empty()) return;
  if (stage == stages_.size()) {
    emit(text);
    return;
  }
  const pcre2_code* code = stages_[stage]->code;
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> match(
      pcre2_match_data_create_from_pattern(code, nullptr));
  DI_CHECK(match != nullptr, "out of memory");
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t emitted = 0, from = 0;
  while (from < text.size()) {
    if (pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, match.get(), nullptr) < 0) break;
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
    const std::size_t begin = bounds[0], end = bounds[1];
    if (end <= begin) {  // an empty match cuts nothing
      const char* next = text.data() + begin;
      if (begin == text.size()) break;
      utf8::decode_trusted(next);
      from = static_cast<std::size_t>(next - text.data());
      continue;
    }
    split(stage + 1, text.substr(emitted, begin - emitted), emit);
    split(stage + 1, text.substr(begin, end - begin), emit);
    emitted = from = end;
  }
  split(stage + 1, text.substr(emitted), emit);
}

}  // namespace deepinfer
