// Cuts text into the pieces inside which byte-pair merges happen: the `pre_tokenizer` of a tokenizer.json, a
// chain of isolating regular-expression splits. The split patterns of the DeepSeek tokenizers are recognised
// and run by deepseek_scan.h; any other pattern runs in PCRE2 (UTF, Unicode properties, JIT). Immutable after
// creation; any thread may call for_each_piece.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/deepseek_scan.h"

namespace deepinfer {

class PreTokenizer {
 public:
  enum class Engine { kAuto, kPcre2 };  ///< kPcre2: never the hand-written pass (differential tests)

  /// `patterns`: the regular expressions of the splits in order, in the syntax of tokenizer.json (Oniguruma).
  /// Errors: kUnsupported with the construct's name where that syntax and PCRE2 part ways; kCorrupt for a
  /// pattern that does not compile.
  static Result<PreTokenizer> create(std::vector<std::string> patterns, Engine engine = Engine::kAuto);

  /// Hands the pieces of well-formed UTF-8 to `emit(std::string_view)`, in order; joined they are the text.
  /// A text on which a PCRE2 pattern exceeds the library's match limits is left uncut from there on.
  template <class Emit>
  void for_each_piece(std::string_view text, Emit&& emit) const {
    if (scan_) {
      deepseek_scan(text, emit);
    } else {
      split(0, text, std::ref(emit));
    }
  }

  /// Whether the hand-written pass is in use.
  bool uses_scan() const { return scan_; }

 private:
  using EmitFunction = std::function<void(std::string_view)>;
  struct Regex;

  void split(std::size_t stage, std::string_view text, const EmitFunction& emit) const;

  bool scan_ = false;
  std::vector<std::shared_ptr<const Regex>> stages_;
};

/// The pattern of a ByteLevel pre-tokenizer with `use_regex`.
extern const char* const kByteLevelPattern;

/// Oniguruma pattern -> PCRE2 pattern of the same meaning. Errors: kUnsupported, as PreTokenizer::create.
Result<std::string> translate_pattern(std::string_view pattern);

/// A pattern that matches `text` itself.
std::string quote_pattern(std::string_view text);

}  // namespace deepinfer
