#include "tokenizer/dsml.h"

namespace deepinfer {

const char* chat_format_name(ChatFormat format) {
  return format == ChatFormat::kV41 ? "v41" : "v4";
}

const DsmlTags& dsml_tags(ChatFormat format) {
  static constexpr DsmlTags kV41 = {
      "<｜DSML｜ calls>",      "<｜DSML｜ invoke name=\"", "<｜DSML｜ parameter name=\"",
      "</｜DSML｜ parameter>", "</｜DSML｜ invoke>",       "</｜DSML｜ calls>"};
  static constexpr DsmlTags kV4 = {"<｜DSML｜tool_calls>",       "<｜DSML｜invoke name=\"",
                                   "<｜DSML｜parameter name=\"", "</｜DSML｜parameter>",
                                   "</｜DSML｜invoke>",          "</｜DSML｜tool_calls>"};
  return format == ChatFormat::kV41 ? kV41 : kV4;
}

bool is_dsml_name(std::string_view name) {
  if (name.empty() || name.size() > 256 || name.find(kDsml) != std::string_view::npos) return false;
  for (char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F || c == '"' || c == '<' || c == '>') return false;
  }
  return true;
}

}  // namespace deepinfer
