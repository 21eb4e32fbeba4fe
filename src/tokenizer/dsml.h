// The markup of tool calls ("DSML") in both families' spelling. V4.1 puts a space behind the marker and calls
// the block "calls"; V4 has no space and calls it "tool_calls".
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

enum class ChatFormat { kV41, kV4 };
/// "v41", "v4".
const char* chat_format_name(ChatFormat format);

/// The marker; one token in both vocabularies.
inline constexpr std::string_view kDsml = "｜DSML｜";

/// Every fixed string of a call block, in the order in which they appear:
///   open_calls \n { open_invoke NAME "> \n { open_parameter NAME " string="true|false"> VALUE
///   close_parameter \n } close_invoke \n } close_calls
struct DsmlTags {
  std::string_view open_calls, open_invoke, open_parameter, close_parameter, close_invoke, close_calls;
};
const DsmlTags& dsml_tags(ChatFormat format);

/// What stands between an answer's text and the call block.
inline constexpr std::string_view kBeforeCalls = "\n\n";

/// Whether `name` may stand between the quotes of a tag: 1..256 bytes, no quote, angle bracket, control
/// character, nor the marker itself.
bool is_dsml_name(std::string_view name);

}  // namespace deepinfer
