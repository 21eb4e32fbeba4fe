#include "engine/structured_compiler.h"

#include <fmt/format.h>

#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "grammar/compiled_grammar.h"
#include "grammar/gbnf.h"
#include "grammar/ir.h"
#include "grammar/json_schema.h"
#include "grammar/lark.h"
#include "grammar/matcher.h"
#include "grammar/regex_parser.h"
#include "grammar/vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

class MatcherConstraint final : public TokenConstraint {
 public:
  explicit MatcherConstraint(grammar::GrammarPtr grammar) : matcher_(std::move(grammar)) {}
  Status mask(std::span<std::uint32_t> bits) override { return matcher_.compute_mask(bits); }
  Status accept(TokenId token) override { return matcher_.accept_token(token); }
  bool can_end() override { return matcher_.is_accepting(); }
  bool no_progress() override { return matcher_.no_progress(); }
  Status rollback(std::int64_t count) override {
    matcher_.rollback(static_cast<std::size_t>(count));
    return {};
  }

 private:
  grammar::Matcher matcher_;
};

class CompiledMatcher final : public CompiledConstraint {
 public:
  explicit CompiledMatcher(grammar::GrammarPtr grammar) : grammar_(std::move(grammar)) {}
  std::unique_ptr<TokenConstraint> start() const override {
    return std::make_unique<MatcherConstraint>(grammar_);
  }

 private:
  grammar::GrammarPtr grammar_;
};

/// Adds the front end's symbol for `what` to the builder.
Result<grammar::Symbol> build(grammar::GrammarBuilder& builder, const StructuredOutput& what,
                              const grammar::Vocabulary& vocabulary, std::vector<std::string>& notes) {
  using Kind = StructuredOutput::Kind;
  switch (what.kind) {
    case Kind::kJsonObject:
      return grammar::add_json_text(builder, grammar::JsonText::kObject, {});
    case Kind::kJsonSchema: {
      grammar::SchemaOptions options;
      options.best_effort = what.best_effort;
      grammar::SchemaNotes found;
      DI_ASSIGN(const grammar::Symbol symbol, grammar::add_json_schema(builder, what.text, options, &found));
      for (const auto& note : found.loosened) {
        notes.push_back(fmt::format("{}: {} is not enforced: {}", note.pointer, note.keyword, note.reason));
      }
      for (const auto& note : found.warnings) {
        notes.push_back(fmt::format("{}: {}: {}", note.pointer, note.keyword, note.reason));
      }
      return symbol;
    }
    case Kind::kRegex: {
      DI_ASSIGN(const grammar::RegexId regex, grammar::parse_regex(builder.regex(), what.text));
      return builder.lexeme(regex);
    }
    case Kind::kChoice: {
      if (what.choices.empty()) return invalid_argument("there is no choice to choose from", "choices");
      std::vector<grammar::Symbol> options;
      for (const std::string& choice : what.choices) options.push_back(builder.literal(choice));
      return builder.alternatives(options);
    }
    case Kind::kGbnf:
      return grammar::build_gbnf(builder, what.text, vocabulary);
    case Kind::kLark:
      return grammar::build_lark(builder, what.text, vocabulary);
    case Kind::kNone:
      break;
  }
  return invalid_argument("no kind of structure is named");
}

class StructuredCompiler final : public ConstraintCompiler {
 public:
  StructuredCompiler(grammar::VocabularyPtr vocabulary, std::size_t kept)
      : vocabulary_(std::move(vocabulary)), kept_(kept) {}

  Result<std::shared_ptr<const CompiledConstraint>> compile(const StructuredOutput& what,
                                                            std::vector<std::string>& warnings) override {
    const std::string key = key_of(what);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = index_.find(key); found != index_.end()) {
        entries_.splice(entries_.begin(), entries_, found->second);
        const Entry& entry = entries_.front();
        warnings.insert(warnings.end(), entry.warnings.begin(), entry.warnings.end());
        return entry.compiled;
      }
    }
    std::vector<std::string> notes;
    grammar::GrammarBuilder builder;
    Result<grammar::Symbol> start = build(builder, what, *vocabulary_, notes);
    if (!start) return start.error().at("structured");
    builder.set_start(*start);
    Result<grammar::GrammarPtr> grammar = grammar::compile(std::move(builder), vocabulary_);
    if (!grammar) return grammar.error().at("structured");
    std::shared_ptr<const CompiledConstraint> compiled =
        std::make_shared<CompiledMatcher>(std::move(grammar).value());
    warnings.insert(warnings.end(), notes.begin(), notes.end());
    const std::lock_guard lock(mutex_);
    if (!index_.contains(key)) {
      entries_.push_front({key, compiled, std::move(notes)});
      index_[key] = entries_.begin();
      if (entries_.size() > kept_) {
        index_.erase(entries_.back().key);
        entries_.pop_back();
      }
    }
    return compiled;
  }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const CompiledConstraint> compiled;
    std::vector<std::string> warnings;
  };

  /// Everything the grammar depends on, with lengths, so that no two differ in meaning and agree in text.
  static std::string key_of(const StructuredOutput& what) {
    std::string key = fmt::format("{} {} {}:{}", static_cast<int>(what.kind), what.best_effort,
                                  what.text.size(), what.text);
    for (const std::string& choice : what.choices) key += fmt::format(" {}:{}", choice.size(), choice);
    return key;
  }

  grammar::VocabularyPtr vocabulary_;
  std::size_t kept_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
};

}  // namespace

Result<std::shared_ptr<ConstraintCompiler>> make_structured_compiler(
    const Tokenizer& tokenizer, std::span<const TokenId> end_ids, std::int64_t logits_width,
    const StructuredCompilerOptions& options) {
  grammar::Vocabulary::Options vocabulary;
  for (TokenId id = 0; id < std::min(tokenizer.vocab_size(), logits_width); ++id) {
    vocabulary.tokens.emplace_back(tokenizer.token_bytes(id));
    if (tokenizer.is_added(id)) vocabulary.special_tokens.push_back(id);
  }
  vocabulary.eos_tokens.assign(end_ids.begin(), end_ids.end());
  vocabulary.logits_width = static_cast<std::size_t>(logits_width);
  DI_ASSIGN(auto shared, grammar::Vocabulary::create(std::move(vocabulary)));
  return std::shared_ptr<ConstraintCompiler>(
      std::make_shared<StructuredCompiler>(std::move(shared), options.kept_grammars));
}

}  // namespace deepinfer
