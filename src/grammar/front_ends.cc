#include "grammar/front_ends.h"

#include <fmt/format.h>

#include "grammar/gbnf.h"
#include "grammar/lark.h"

namespace deepinfer::grammar {

Result<GrammarPtr> compile_regex(std::string_view pattern, const VocabularyPtr& vocabulary,
                                 const RegexOptions& regex, const CompileOptions& options) {
  GrammarBuilder builder(options.limits);
  DI_ASSIGN(const RegexId id, parse_regex(builder.regex(), pattern, regex));
  builder.set_start(builder.lexeme(id));
  return compile(std::move(builder), vocabulary, options.cancel);
}

Result<GrammarPtr> compile_choice(std::span<const std::string> choices, const VocabularyPtr& vocabulary,
                                  const CompileOptions& options) {
  if (choices.empty()) return invalid_argument("the list of choices is empty");
  GrammarBuilder builder(options.limits);
  std::vector<RegexId> parts;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    std::uint32_t code_point = 0;
    std::size_t pos = 0;
    while (pos < choices[i].size())
      if (!next_utf8(choices[i], pos, code_point))
        return invalid_argument("a choice is not valid UTF-8", fmt::format("choice {}", i));
    parts.push_back(builder.regex().literal(choices[i]));
  }
  builder.set_start(builder.lexeme(builder.regex().alt(parts)));
  return compile(std::move(builder), vocabulary, options.cancel);
}

Result<GrammarPtr> compile_gbnf(std::string_view text, const VocabularyPtr& vocabulary,
                                const CompileOptions& options) {
  GrammarBuilder builder(options.limits);
  DI_ASSIGN(const Symbol start, build_gbnf(builder, text, *vocabulary));
  builder.set_start(start);
  return compile(std::move(builder), vocabulary, options.cancel);
}

Result<GrammarPtr> compile_lark(std::string_view text, const VocabularyPtr& vocabulary,
                                const CompileOptions& options) {
  GrammarBuilder builder(options.limits);
  DI_ASSIGN(const Symbol start, build_lark(builder, text, *vocabulary));
  builder.set_start(start);
  return compile(std::move(builder), vocabulary, options.cancel);
}

}  // namespace deepinfer::grammar
