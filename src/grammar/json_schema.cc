#include "grammar/json_schema.h"

#include "grammar/schema/grammar_writer.h"
#include "grammar/schema/normaliser.h"

namespace deepinfer::grammar {

Result<Symbol> add_json_schema(GrammarBuilder& builder, std::string_view schema, const SchemaOptions& options,
                               SchemaNotes* notes) {
  DI_ASSIGN(const auto set,
            schema::SchemaSet::load(schema, options.default_draft, options.documents, options.json_limits));
  schema::StringAlgebra strings(builder.regex());
  schema::Normaliser normaliser(*set, strings, options);
  DI_ASSIGN(const schema::NodeId root, normaliser.root());
  schema::GrammarWriter writer(normaliser, builder);
  auto symbol = writer.write(root);
  if (notes != nullptr) {
    notes->loosened = std::move(normaliser.loosened);
    notes->warnings = std::move(normaliser.warnings);
  }
  return symbol;
}

Result<Symbol> add_json_text(GrammarBuilder& builder, JsonText what, const SchemaOptions& options) {
  return add_json_schema(builder, what == JsonText::kObject ? R"({"type":"object"})" : "{}", options);
}

Result<GrammarPtr> compile_json_schema(std::string_view schema, const VocabularyPtr& vocabulary,
                                       const SchemaOptions& options, SchemaNotes* notes,
                                       const GrammarLimits& limits, const CancelFlag* cancel) {
  GrammarBuilder builder(limits);
  DI_ASSIGN(const Symbol symbol, add_json_schema(builder, schema, options, notes));
  builder.set_start(symbol);
  return compile(std::move(builder), vocabulary, cancel);
}

Result<GrammarPtr> compile_json_text(JsonText what, const VocabularyPtr& vocabulary,
                                     const SchemaOptions& options) {
  GrammarBuilder builder;
  DI_ASSIGN(const Symbol symbol, add_json_text(builder, what, options));
  builder.set_start(symbol);
  return compile(std::move(builder), vocabulary);
}

}  // namespace deepinfer::grammar
