#include "api/structured_fields.h"

#include <fmt/format.h>

namespace deepinfer {
namespace {

using Kind = StructuredOutput::Kind;

Status claim(StructuredOutput& constraint, Kind kind, std::string text, const JsonRef& place) {
  if (constraint.kind != Kind::kNone) {
    return place.error("a second constraint; one answer can follow only one");
  }
  constraint.kind = kind;
  constraint.text = std::move(text);
  return {};
}

// A schema may be an object, true, false, or any of these as JSON text.
Status claim_schema(StructuredOutput& constraint, const JsonRef& schema) {
  const Json& value = schema.value();
  if (value.is_string()) return claim(constraint, Kind::kJsonSchema, value.as_string(), schema);
  if (!value.is_object() && !value.is_bool()) return FieldReader::wrong_type(schema, "a JSON schema");
  return claim(constraint, Kind::kJsonSchema, to_json_text(value), schema);
}

Status claim_choices(StructuredOutput& constraint, const JsonRef& choices) {
  if (!choices.value().is_array() || choices.value().as_array().empty()) {
    return FieldReader::wrong_type(choices, "a non-empty array of strings");
  }
  DI_TRY(claim(constraint, Kind::kChoice, "", choices));
  DI_ASSIGN(const auto elements, choices.elements());
  for (const JsonRef& element : elements) {
    DI_ASSIGN(std::string text, element.as_string());
    constraint.choices.push_back(std::move(text));
  }
  return {};
}

// GBNF rules are written with "::="; Lark's are not.
Status claim_grammar(StructuredOutput& constraint, const JsonRef& grammar) {
  DI_ASSIGN(std::string text, grammar.as_string());
  const Kind kind = text.find("::=") != std::string::npos ? Kind::kGbnf : Kind::kLark;
  return claim(constraint, kind, std::move(text), grammar);
}

Status claim_regex(StructuredOutput& constraint, const JsonRef& regex) {
  DI_ASSIGN(std::string text, regex.as_string());
  return claim(constraint, Kind::kRegex, std::move(text), regex);
}

Status response_format(FieldReader& body, StructuredOutput& constraint) {
  const auto value = body.find("response_format");
  if (!value) return {};
  if (!value->value().is_object()) return FieldReader::wrong_type(*value, "an object");
  FieldReader format(*value);
  std::string type;
  DI_TRY(format.string("type", type));
  if (type == "text") return {};
  if (type == "json_object") return claim(constraint, Kind::kJsonObject, "", *value);
  if (type != "json_schema") {
    return format.error_at("type", "expected \"text\", \"json_object\" or \"json_schema\"");
  }
  const auto named = format.find("json_schema");
  if (!named || !named->value().is_object()) {
    return format.error_at("json_schema", "expected an object with a \"schema\"");
  }
  FieldReader inner(*named);
  const auto schema = inner.find("schema");
  if (!schema) return inner.error_at("schema", "missing");
  bool strict = true;
  DI_TRY(inner.boolean("strict", strict));
  DI_TRY(claim_schema(constraint, *schema));
  constraint.best_effort = !strict;
  return {};
}

// The members of structured_outputs; `prefix` "guided_" reads their older spelling from the body itself.
Status constraint_members(FieldReader& fields, std::string_view prefix, StructuredOutput& constraint) {
  const auto find = [&](std::string_view member) { return fields.find(fmt::format("{}{}", prefix, member)); };
  if (const auto schema = find("json")) DI_TRY(claim_schema(constraint, *schema));
  if (const auto regex = find("regex")) DI_TRY(claim_regex(constraint, *regex));
  if (const auto grammar = find("grammar")) DI_TRY(claim_grammar(constraint, *grammar));
  if (const auto choices = find("choice")) DI_TRY(claim_choices(constraint, *choices));
  return {};
}

Status structured_outputs(FieldReader& body, StructuredOutput& constraint) {
  const auto value = body.find("structured_outputs");
  if (!value) return {};
  if (!value->value().is_object()) return FieldReader::wrong_type(*value, "an object");
  FieldReader fields(*value);
  DI_TRY(constraint_members(fields, "", constraint));
  bool object = false;
  DI_TRY(fields.boolean("json_object", object));
  if (object) DI_TRY(claim(constraint, Kind::kJsonObject, "", *value));
  DI_TRY(fields.boolean("best_effort", constraint.best_effort));
  // A misspelt constraint would mean no constraint at all, so this object is strict in every mode.
  if (const auto unread = fields.unread(); !unread.empty()) {
    return fields.error_at(unread.front(),
                           "expected json, json_object, regex, grammar, choice or best_effort");
  }
  if (constraint.kind == Kind::kNone) {
    return value->error("expected one of json, json_object, regex, grammar, choice");
  }
  return {};
}

}  // namespace

Status read_structured_fields(FieldReader& body, StructuredOutput& constraint) {
  DI_TRY(response_format(body, constraint));
  DI_TRY(structured_outputs(body, constraint));
  return constraint_members(body, "guided_", constraint);
}

}  // namespace deepinfer
