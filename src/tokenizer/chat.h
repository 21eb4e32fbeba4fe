// A conversation as plain data, and how it is read from the JSON of an OpenAI-style request.
// Elsewhere: turning it into a prompt (chat_encoder.h), reading the model's answer (chat_parser.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace deepinfer {

class Json;
class JsonRef;

enum class ChatRole { kSystem, kUser, kAssistant, kTool, kLatestReminder, kDeveloper };
/// "system", "user", ...
const char* chat_role_name(ChatRole role);

struct ContentPart {
  enum class Kind { kText, kImage };
  Kind kind = Kind::kText;
  std::string text;  ///< kText: the text; kImage: where the picture is (data: URL, file, ...), as given
};

/// A function call of an assistant message.
struct ToolCall {
  std::string id;         ///< the caller's name for it; may be empty
  std::string name;       ///< `ns::tool` for namespaced tools
  std::string arguments;  ///< JSON text of one object
};

/// A function the model may call: the JSON object with name, description and parameters, spelled as Python's
/// json.dumps(..., ensure_ascii=False) spells it (python_json.h); models were trained on that spelling.
struct ToolSpec {
  std::string name;
  std::string json;
};

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::vector<ContentPart> content;  ///< pictures only in user and tool messages
  std::string reasoning;             ///< assistant only
  std::vector<ToolCall> tool_calls;  ///< assistant only
  std::string tool_call_id;          ///< tool only: the call this is the result of
  std::vector<ToolSpec> tools;       ///< system and developer only: tools declared by this message
};

struct Conversation {
  std::vector<ChatMessage> messages;
  std::vector<ToolSpec> tools;  ///< offered to the model in the first system text
  std::string response_schema;  ///< JSON text of the wanted answer's schema; empty = none
};

/// How a conversation becomes a prompt.
struct ChatOptions {
  bool thinking = false;
  /// Thinking mode: a number 1..100 or one of the model's names ("low", "high", "max"); empty = the model's
  /// default.
  std::string effort = {};
  /// Leave out the reasoning of assistant turns before the last user turn. Never done while any tool is
  /// declared.
  bool drop_thinking = true;
  /// The last message is an assistant's and is to be continued: no end-of-sequence token behind it.
  bool continue_final_message = false;
};

struct ChatJsonOptions {
  /// OpenAI clients call the system message "developer". false keeps it apart as the model's internal
  /// developer role, which is rendered as a user turn and dropped with old reasoning.
  bool developer_as_system = true;
};

/// Reads `messages`, `tools`, `tool_choice` ("none" leaves the tools out) and `response_format` of a request
/// body. Errors: kInvalidArgument with the JSON pointer: wrong types, no messages, unknown roles and part
/// types, tool arguments that are no JSON object, names that cannot be spelled in the call markup.
Result<Conversation> chat_from_json(const JsonRef& body, const ChatJsonOptions& options = {});

/// Reads `thinking` (bool, or {"type": "enabled"|"disabled"}), `reasoning_effort` (text or number; "none"
/// switches thinking off, anything else on), `drop_thinking` and `continue_final_message` over `defaults`.
Result<ChatOptions> chat_options_from_json(const JsonRef& body, ChatOptions defaults = {});

}  // namespace deepinfer
