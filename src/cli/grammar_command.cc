// deepinfer grammar check|mask|test: try a schema or pattern and a text without a model.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/common.h"
#include "grammar/front_ends.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "io/json.h"
#include "io/mmap_file.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::cli {
namespace {

struct Options {
  std::string schema_file, regex, gbnf_file, lark_file, tokenizer, text, text_file;
  bool json_object = false, best_effort = false, compact = false, any_whitespace = false, as_written = false;
  int limit = 40;
};

// The tokenizer's tokens, or single bytes when none is given: enough for `check` and `test`.
Result<grammar::VocabularyPtr> vocabulary_of(const Options& options) {
  grammar::Vocabulary::Options out;
  if (options.tokenizer.empty()) {
    for (int b = 0; b < 256; ++b) out.tokens.emplace_back(1, static_cast<char>(b));
    out.tokens.emplace_back();
    out.special_tokens = out.eos_tokens = {256};
    return grammar::Vocabulary::create(std::move(out));
  }
  DI_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(options.tokenizer));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    out.tokens.emplace_back(tokenizer.token_bytes(id));
    if (tokenizer.is_added(id)) out.special_tokens.push_back(id);
  }
  const auto end = tokenizer.find_token("<｜end▁of▁sentence｜>");
  if (!end) return unsupported("the tokenizer has no end-of-sentence token", options.tokenizer);
  out.eos_tokens.push_back(*end);
  return grammar::Vocabulary::create(std::move(out));
}

Result<grammar::GrammarPtr> compile_of(const Options& options, grammar::SchemaNotes& notes) {
  DI_ASSIGN(const grammar::VocabularyPtr vocabulary, vocabulary_of(options));
  grammar::SchemaOptions schema;
  schema.best_effort = options.best_effort;
  if (options.compact) schema.whitespace = schema::Whitespace::kCompact;
  if (options.any_whitespace) schema.whitespace = schema::Whitespace::kAny;
  if (options.as_written) schema.order = schema::PropertyOrder::kAsWritten;
  if (!options.regex.empty()) return grammar::compile_regex(options.regex, vocabulary);
  if (!options.gbnf_file.empty() || !options.lark_file.empty()) {
    const std::string& file = options.gbnf_file.empty() ? options.lark_file : options.gbnf_file;
    DI_ASSIGN(const std::string text, read_text_file(file, std::size_t{16} << 20));
    auto made = options.gbnf_file.empty() ? grammar::compile_lark(text, vocabulary)
                                          : grammar::compile_gbnf(text, vocabulary);
    return made.ok() ? std::move(made) : Result<grammar::GrammarPtr>(made.error().at(file));
  }
  if (options.json_object) return grammar::compile_json_text(grammar::JsonText::kObject, vocabulary, schema);
  if (options.schema_file.empty())
    return invalid_argument("give --schema FILE, --regex PATTERN, --gbnf FILE, --lark FILE or --json-object");
  DI_ASSIGN(const std::string text, read_text_file(options.schema_file, schema.json_limits.max_bytes));
  auto made = grammar::compile_json_schema(text, vocabulary, schema, &notes);
  return made.ok() ? std::move(made) : Result<grammar::GrammarPtr>(made.error().at(options.schema_file));
}

Status check(const Options& options) {
  grammar::SchemaNotes notes;
  DI_ASSIGN(const grammar::GrammarPtr compiled, compile_of(options, notes));
  std::printf("enforced: %zu lexemes, %zu nonterminals, %zu loops, %zu KiB\n", compiled->lexemes().size(),
              compiled->nonterminals().size(), compiled->loops().size(), compiled->memory_bytes() / 1024);
  for (const auto& note : notes.loosened) {
    std::printf("not enforced: %s (%s): %s\n", note.pointer.c_str(), note.keyword.c_str(),
                note.reason.c_str());
  }
  for (const auto& note : notes.warnings)
    std::printf("note: %s: %s\n", note.pointer.c_str(), note.reason.c_str());
  return {};
}

Result<std::string> text_of(const Options& options) {
  if (options.text_file.empty()) return options.text;
  if (options.text_file == "-")
    return std::string{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  return read_text_file(options.text_file, std::size_t{64} << 20);
}

// Bytes of `text` that are allowed; all of them when the text can be continued or is complete.
std::size_t push(grammar::Matcher& matcher, std::string_view text) {
  std::size_t done = 0;
  while (done < text.size() && matcher.accept_bytes(text.substr(done, 1)).ok()) ++done;
  return done;
}

Status print_mask(const Options& options) {
  grammar::SchemaNotes notes;
  DI_ASSIGN(const grammar::GrammarPtr compiled, compile_of(options, notes));
  DI_ASSIGN(const std::string text, text_of(options));
  grammar::Matcher matcher(compiled);
  if (const std::size_t done = push(matcher, text); done < text.size()) {
    return invalid_argument("the text is not allowed from here on", "byte " + std::to_string(done));
  }
  std::vector<std::uint32_t> mask(compiled->vocabulary()->mask_words());
  DI_TRY(matcher.compute_mask(mask));
  int count = 0;
  for (std::size_t id = 0; id < compiled->vocabulary()->token_count(); ++id) {
    if ((mask[id / 32] >> (id % 32) & 1) == 0) continue;
    const auto token = static_cast<TokenId>(id);
    if (count++ >= options.limit) continue;
    const bool end = compiled->vocabulary()->is_eos(token);
    std::printf("%7zu  %s\n", id, end ? "end" : json_quote(compiled->vocabulary()->text(token)).c_str());
  }
  std::printf("%d of %zu tokens%s\n", count, compiled->vocabulary()->token_count(),
              matcher.is_accepting() ? ", complete" : "");
  if (const std::string forced = matcher.forced_bytes(); !forced.empty())
    std::printf("forced: %s\n", json_quote(forced).c_str());
  return {};
}

Result<bool> test(const Options& options) {
  grammar::SchemaNotes notes;
  DI_ASSIGN(const grammar::GrammarPtr compiled, compile_of(options, notes));
  DI_ASSIGN(const std::string text, text_of(options));
  grammar::Matcher matcher(compiled);
  const std::size_t done = push(matcher, text);
  const bool accepted = done == text.size() && matcher.is_accepting();
  if (accepted)
    std::printf("accepted\n");
  else if (done == text.size())
    std::printf("rejected: the text ends too early\n");
  else
    std::printf("rejected at byte %zu: %s is not allowed after %s\n", done,
                json_quote(text.substr(done, 1)).c_str(),
                json_quote(text.substr(done < 30 ? 0 : done - 30, std::min<std::size_t>(done, 30))).c_str());
  return accepted;
}

void add_options(CLI::App& command, Options& options, bool with_text) {
  command.add_option("--schema", options.schema_file, "JSON Schema file");
  command.add_option("--regex", options.regex, "Regular expression for the whole text");
  command.add_option("--gbnf", options.gbnf_file, "Grammar file in GBNF");
  command.add_option("--lark", options.lark_file, "Grammar file in Lark syntax");
  command.add_flag("--json-object", options.json_object, "Any JSON object");
  command.add_flag("--best-effort", options.best_effort, "Drop what cannot be enforced, and list it");
  command.add_flag("--compact", options.compact, "No white space between JSON tokens");
  command.add_flag("--any-whitespace", options.any_whitespace, "Unlimited white space between JSON tokens");
  command.add_flag("--as-written", options.as_written, "Members in the order of the schema");
  if (!with_text) return;
  command.add_option("text", options.text, "The text (or its beginning)");
  command.add_option("--file", options.text_file, "Read the text from a file; - is the standard input");
}

}  // namespace

void register_grammar(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("grammar", "Try a schema, pattern or grammar for structured output");
  command->require_subcommand(1);
  const auto options = std::make_shared<Options>();
  CLI::App* check_command = command->add_subcommand("check", "Say whether it is enforced, and what is not");
  add_options(*check_command, *options, false);
  check_command->callback([options, &exit_code] {
    const Status status = check(*options);
    exit_code = status.ok() ? kExitOk : report(status.error());
  });
  CLI::App* mask_command = command->add_subcommand("mask", "List the tokens that may follow a text");
  add_options(*mask_command, *options, true);
  mask_command->add_option("--tokenizer", options->tokenizer, "tokenizer.json; single bytes without it");
  mask_command->add_option("--limit", options->limit, "Tokens to list")->capture_default_str();
  mask_command->callback([options, &exit_code] {
    const Status status = print_mask(*options);
    exit_code = status.ok() ? kExitOk : report(status.error());
  });
  CLI::App* test_command =
      command->add_subcommand("test", "Say whether a text is accepted (exit code 3 if not)");
  add_options(*test_command, *options, true);
  test_command->callback([options, &exit_code] {
    const Result<bool> accepted = test(*options);
    exit_code = !accepted.ok() ? report(accepted.error()) : *accepted ? kExitOk : kExitSomeFailed;
  });
}

}  // namespace deepinfer::cli
