// The words of a chat format that are not its structure: the tools section, the effort line, the
// response-format section. They belong to a checkpoint and come from chat_wording.json in its folder
// (docs/chat-wording.md); without that file our own words stand in.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tokenizer/dsml.h"

namespace deepinfer {

inline constexpr const char* kChatWordingFile = "chat_wording.json";

struct ChatWording {
  ChatFormat format = ChatFormat::kV41;
  /// Text of the tools section; {tool_schemas} is replaced by one JSON object a line. Empty: tools are not
  /// shown to the model. Control tokens written here (such as the call marker) are encoded as such.
  std::string tools_section;
  /// Text of the response-format section; {schema} is replaced. Empty: no section.
  std::string response_format_section;
  /// Thinking mode: the text at the very start; {effort} is replaced by the number. Empty: no line.
  std::string effort_line;
  /// Names of numeric efforts, e.g. "max" -> 100.
  std::map<std::string, int> efforts;
  /// Names of efforts that have a text of their own instead of a number (V4), possibly empty.
  std::map<std::string, std::string> effort_texts;
  std::string default_effort;
  /// Around a tool's result; {content} is replaced.
  std::string tool_result = "<tool_result>{content}</tool_result>";

  static ChatWording built_in(ChatFormat format);
  /// `folder`/chat_wording.json, or built_in(format_without_file) when there is no such file.
  /// Errors: kInvalidArgument / kCorrupt with file and JSON pointer: unknown members, wrong types, missing
  /// placeholders.
  static Result<ChatWording> load(const std::string& folder, ChatFormat format_without_file);
  static Result<ChatWording> parse(std::string_view json, const std::string& name = kChatWordingFile);

  /// The text that starts a thinking prompt for `effort` (a name, a number 1..100, or empty for the default).
  /// Errors: kInvalidArgument that lists the efforts there are.
  Result<std::string> effort_text(const std::string& effort) const;
};

/// `text` with each {name} of `values` replaced, in one pass: what is inserted is not looked at again.
std::string fill_placeholders(std::string_view text, const std::map<std::string, std::string>& values);

}  // namespace deepinfer
