#include "batch/batch_line.h"

#include <fmt/format.h>

#include "api/json_fields.h"

namespace deepinfer {
namespace {

// A line is one line, so "line 1, " in the parser's place only confuses beside the number in the file.
Error json_error(Error error) {
  constexpr std::string_view kFirst = "line 1, ";
  for (std::string* text : {&error.where, &error.message}) {
    if (const std::size_t at = text->find(kFirst); at != std::string::npos) text->erase(at, kFirst.size());
  }
  error.message = "not valid JSON: " + error.message;
  return error;
}

Result<std::optional<std::string>> read_id(FieldReader& fields, std::string_view name) {
  const auto value = fields.find(name);
  if (!value) return std::optional<std::string>();
  if (value->value().is_int()) return std::optional<std::string>(fmt::format("{}", value->value().as_int()));
  if (!value->value().is_string()) return FieldReader::wrong_type(*value, "a string or an integer");
  return std::optional<std::string>(value->value().as_string());
}

Result<BatchRequest> openai_line(FieldReader& fields, bool strict) {
  BatchRequest request;
  request.pointer = "/body";
  std::string method = "POST";
  DI_TRY(fields.string("method", method));
  if (method != "POST")
    return fields.error_at("method", fmt::format("expected \"POST\", found {}", json_quote(method)));
  std::string url;
  DI_TRY(fields.string("url", url));
  if (url == endpoint_path(Endpoint::kChat)) {
    request.endpoint = Endpoint::kChat;
  } else if (url == endpoint_path(Endpoint::kCompletion)) {
    request.endpoint = Endpoint::kCompletion;
  } else if (url.empty()) {
    return fields.error_at("url", "missing; expected /v1/chat/completions or /v1/completions");
  } else {
    return unsupported(fmt::format("unknown endpoint {}; expected /v1/chat/completions or /v1/completions",
                                   describe_json(Json(url))),
                       fields.pointer("url"));
  }
  const auto body = fields.find("body");
  if (!body) return fields.error_at("body", "missing");
  if (!body->value().is_object()) return FieldReader::wrong_type(*body, "an object");
  if (const auto unread = fields.unread(); strict && !unread.empty()) {
    return fields.error_at(unread.front(), "unknown field; expected custom_id, method, url and body");
  }
  request.body = body->value();
  return request;
}

Result<BatchRequest> plain_line(const Json& line) {
  BatchRequest request;
  const bool chat = line.find("messages") != nullptr;
  if (!chat && line.find("prompt") == nullptr) {
    return invalid_argument("expected \"body\" and \"url\", \"messages\", or \"prompt\"");
  }
  request.endpoint = chat ? Endpoint::kChat : Endpoint::kCompletion;
  request.body = Json::object();
  for (const JsonMember& member : line.as_object()) {
    if (member.first != "custom_id" && member.first != "id") request.body.as_object().push_back(member);
  }
  return request;
}

}  // namespace

BatchLine parse_batch_line(std::string_view text, bool strict) {
  Result<Json> line = parse_json(text);
  if (!line.ok()) return {std::nullopt, json_error(line.error())};
  if (!line->is_object()) {
    return {std::nullopt,
            invalid_argument(fmt::format("expected an object, found {}", describe_json(*line)))};
  }
  FieldReader fields{JsonRef(*line)};
  Result<std::optional<std::string>> id = read_id(fields, "custom_id");
  if (!id.ok()) return {std::nullopt, id.error()};
  if (line->find("body") != nullptr || line->find("url") != nullptr) {
    if (!*id) return {std::nullopt, fields.error_at("custom_id", "missing")};
    return {*id, openai_line(fields, strict)};
  }
  if (!*id) id = read_id(fields, "id");
  if (!id.ok()) return {std::nullopt, id.error()};
  return {*id, plain_line(*line)};
}

}  // namespace deepinfer
