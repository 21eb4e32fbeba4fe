#include <fmt/format.h>

#include "io/json.h"
#include "tokenizer/chat.h"
#include "tokenizer/dsml.h"
#include "tokenizer/python_json.h"

namespace deepinfer {
namespace {

struct RoleName {
  const char* name;
  ChatRole role;
};
constexpr RoleName kRoles[] = {{"system", ChatRole::kSystem},
                               {"user", ChatRole::kUser},
                               {"assistant", ChatRole::kAssistant},
                               {"tool", ChatRole::kTool},
                               {"latest_reminder", ChatRole::kLatestReminder},
                               {"developer", ChatRole::kDeveloper}};

Result<std::string> read_name(const JsonRef& ref) {
  DI_ASSIGN(std::string name, ref.as_string());
  if (!is_dsml_name(name)) {
    return ref.error("a name has 1 to 256 characters, without quotes, angle brackets and control characters");
  }
  return name;
}

Result<ChatRole> read_role(const JsonRef& message, const ChatJsonOptions& options) {
  DI_ASSIGN(const JsonRef ref, message.get("role"));
  DI_ASSIGN(const std::string name, ref.as_string());
  for (const RoleName& r : kRoles) {
    if (name != r.name) continue;
    return r.role == ChatRole::kDeveloper && options.developer_as_system ? ChatRole::kSystem : r.role;
  }
  return ref.error(
      fmt::format("unknown role '{}'; use system, developer, user, assistant, tool or latest_reminder",
                  name.substr(0, 40)));
}

Result<ContentPart> read_part(const JsonRef& ref, ChatRole role) {
  DI_ASSIGN(const JsonRef type_ref, ref.get("type"));
  DI_ASSIGN(const std::string type, type_ref.as_string());
  ContentPart part;
  if (type == "text") {
    DI_ASSIGN(const JsonRef text, ref.get("text"));
    DI_ASSIGN(part.text, text.as_string());
    return part;
  }
  if (type == "image_url") {
    if (role != ChatRole::kUser && role != ChatRole::kTool) {
      return ref.error("pictures are only taken in user and tool messages");
    }
    part.kind = ContentPart::Kind::kImage;
    DI_ASSIGN(const JsonRef image, ref.get("image_url"));
    if (image.value().is_string()) {
      part.text = image.value().as_string();
    } else {
      DI_ASSIGN(const JsonRef url, image.get("url"));
      DI_ASSIGN(part.text, url.as_string());
    }
    if (part.text.empty()) return image.error("the picture's address is empty");
    return part;
  }
  return type_ref.error(
      fmt::format("content part type '{}' is not supported; use text or image_url", type.substr(0, 40)));
}

Status read_content(const JsonRef& message, ChatMessage& out) {
  const auto ref = message.find("content");
  if (!ref) {
    if (out.role == ChatRole::kAssistant) return {};  // a turn of calls or of reasoning only
    DI_ASSIGN(const JsonRef missing, message.get("content"));
    return missing.error("expected a text or an array of parts, found null");
  }
  if (ref->value().is_string()) {
    out.content.push_back({ContentPart::Kind::kText, ref->value().as_string()});
    return {};
  }
  if (!ref->value().is_array()) {
    return ref->error(
        fmt::format("expected a text or an array of parts, found {}", ref->value().kind_name()));
  }
  DI_ASSIGN(const std::vector<JsonRef> parts, ref->elements());
  for (const JsonRef& item : parts) {
    DI_ASSIGN(ContentPart part, read_part(item, out.role));
    out.content.push_back(std::move(part));
  }
  return {};
}

Result<std::string> read_arguments(const JsonRef& ref) {
  if (ref.value().is_object()) return python_json_dumps(ref.value());
  DI_ASSIGN(std::string text, ref.as_string());
  if (text.empty()) return std::string("{}");
  const auto parsed = parse_json(text);
  if (!parsed.ok())
    return ref.error(fmt::format("the arguments are not JSON: {}", parsed.error().to_string()));
  if (!parsed->is_object())
    return ref.error(fmt::format("the arguments must be a JSON object, found {}", parsed->kind_name()));
  for (const auto& [key, value] : parsed->as_object()) {
    if (!is_dsml_name(key))
      return ref.error("an argument's name has 1 to 256 characters, without quotes and angle brackets");
  }
  return text;
}

Status read_tool_calls(const JsonRef& message, ChatMessage& out) {
  const auto list = message.find("tool_calls");
  if (!list) return {};
  if (out.role != ChatRole::kAssistant) return list->error("only assistant messages have tool calls");
  DI_ASSIGN(const std::vector<JsonRef> calls, list->elements());
  for (const JsonRef& item : calls) {
    ToolCall call;
    if (const auto id = item.find("id")) {
      DI_ASSIGN(call.id, id->as_string());
    }
    if (const auto type = item.find("type")) {
      DI_ASSIGN(const std::string name, type->as_string());
      if (name != "function") return type->error("only calls of type 'function' are supported");
    }
    DI_ASSIGN(const JsonRef function, item.get("function"));
    DI_ASSIGN(const JsonRef name, function.get("name"));
    DI_ASSIGN(call.name, read_name(name));
    if (const auto arguments = function.find("arguments")) {
      DI_ASSIGN(call.arguments, read_arguments(*arguments));
    } else {
      call.arguments = "{}";
    }
    out.tool_calls.push_back(std::move(call));
  }
  return {};
}

Status read_tools(const JsonRef& owner, std::vector<ToolSpec>& out) {
  const auto list = owner.find("tools");
  if (!list) return {};
  DI_ASSIGN(const std::vector<JsonRef> tools, list->elements());
  for (const JsonRef& item : tools) {
    DI_ASSIGN(const JsonRef type, item.get("type"));
    DI_ASSIGN(const std::string type_name, type.as_string());
    if (type_name != "function") {
      return type.error(
          fmt::format("tool type '{}' is not supported; only 'function' is", type_name.substr(0, 40)));
    }
    DI_ASSIGN(const JsonRef function, item.get("function"));
    DI_ASSIGN(const JsonRef name, function.get("name"));
    ToolSpec spec;
    DI_ASSIGN(spec.name, read_name(name));
    spec.json = python_json_dumps(function.value());
    out.push_back(std::move(spec));
  }
  return {};
}

Result<ChatMessage> read_message(const JsonRef& ref, const ChatJsonOptions& options) {
  ChatMessage out;
  DI_ASSIGN(out.role, read_role(ref, options));
  DI_TRY(read_content(ref, out));
  DI_TRY(read_tool_calls(ref, out));
  for (const char* name : {"reasoning_content", "reasoning"}) {
    const auto reasoning = ref.find(name);
    if (!reasoning || out.role != ChatRole::kAssistant) continue;
    DI_ASSIGN(out.reasoning, reasoning->as_string());
    break;
  }
  if (out.role == ChatRole::kTool) {
    if (const auto id = ref.find("tool_call_id")) {
      DI_ASSIGN(out.tool_call_id, id->as_string());
    }
  }
  if (ref.find("tools")) {
    if (out.role != ChatRole::kSystem && out.role != ChatRole::kDeveloper) {
      return ref.find("tools")->error("only system and developer messages declare tools");
    }
    DI_TRY(read_tools(ref, out.tools));
  }
  return out;
}

Status read_response_format(const JsonRef& body, Conversation& out) {
  const auto format = body.find("response_format");
  if (!format) return {};
  DI_ASSIGN(const JsonRef type_ref, format->get("type"));
  DI_ASSIGN(const std::string type, type_ref.as_string());
  if (type != "json_schema") return {};
  DI_ASSIGN(const JsonRef wrapper, format->get("json_schema"));
  DI_ASSIGN(const JsonRef schema, wrapper.get("schema"));
  if (!schema.value().is_object() && !schema.value().is_bool()) {
    return schema.error(fmt::format("expected a schema object, found {}", schema.value().kind_name()));
  }
  out.response_schema = python_json_dumps(schema.value());
  return {};
}

}  // namespace

const char* chat_role_name(ChatRole role) {
  for (const RoleName& r : kRoles) {
    if (r.role == role) return r.name;
  }
  return "?";
}

Result<Conversation> chat_from_json(const JsonRef& body, const ChatJsonOptions& options) {
  Conversation out;
  DI_ASSIGN(const JsonRef list, body.get("messages"));
  DI_ASSIGN(const std::vector<JsonRef> messages, list.elements());
  if (messages.empty()) return list.error("there are no messages");
  for (const JsonRef& item : messages) {
    DI_ASSIGN(ChatMessage message, read_message(item, options));
    out.messages.push_back(std::move(message));
  }
  bool offer_tools = true;
  if (const auto choice = body.find("tool_choice"); choice && choice->value().is_string()) {
    offer_tools = choice->value().as_string() != "none";
  }
  DI_TRY(read_tools(body, out.tools));
  if (!offer_tools) out.tools.clear();
  DI_TRY(read_response_format(body, out));
  return out;
}

Result<ChatOptions> chat_options_from_json(const JsonRef& body, ChatOptions options) {
  if (const auto effort = body.find("reasoning_effort")) {
    if (effort->value().is_int()) {
      DI_ASSIGN(const std::int64_t number, effort->as_int(1, 100));
      options.effort = std::to_string(number);
    } else {
      DI_ASSIGN(options.effort, effort->as_string());
    }
    options.thinking = options.effort != "none";
    if (!options.thinking) options.effort.clear();
  }
  if (const auto thinking = body.find("thinking")) {
    if (thinking->value().is_bool()) {
      options.thinking = thinking->value().as_bool();
    } else {
      DI_ASSIGN(const JsonRef type_ref, thinking->get("type"));
      DI_ASSIGN(const std::string type, type_ref.as_string());
      if (type != "enabled" && type != "disabled") return type_ref.error("use enabled or disabled");
      options.thinking = type == "enabled";
    }
  }
  if (const auto drop = body.find("drop_thinking")) {
    DI_ASSIGN(options.drop_thinking, drop->as_bool());
  }
  if (const auto more = body.find("continue_final_message")) {
    DI_ASSIGN(options.continue_final_message, more->as_bool());
  }
  return options;
}

}  // namespace deepinfer
