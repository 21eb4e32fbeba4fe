#include "tokenizer/chat_wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "io/json.h"
#include "io/mmap_file.h"

namespace deepinfer {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxPlaceholder = 32;  // bytes between { and }

// {open} and the like spell the tags of the format, so one text serves both.
constexpr const char* kToolsSection =
    "## Tools\n\n"
    "You can call functions. To call one or more, end your answer with a block of exactly this form:\n\n"
    "{open_calls}\n"
    "{open_invoke}FUNCTION\">\n"
    "{open_parameter}PARAMETER\" string=\"true|false\">VALUE{close_parameter}\n"
    "{close_invoke}\n"
    "{close_calls}\n\n"
    "One invoke element is one call, and one parameter element is one argument. Write a text as it is, with "
    "string=\"true\"; write a number, truth value, list or object as JSON, with string=\"false\".\n\n"
    "The functions, one JSON description a line:\n\n"
    "{tool_schemas}";

constexpr const char* kResponseFormatSection =
    "## Response Format:\n\nAnswer with one JSON value that follows this JSON schema:\n{schema}";

Result<std::string> text_member(const JsonRef& root, const char* name, const char* placeholder) {
  const auto ref = root.find(name);
  if (!ref) return std::string();
  DI_ASSIGN(std::string text, ref->as_string());
  if (!text.empty() && placeholder != nullptr && text.find(placeholder) == std::string::npos) {
    return ref->error(fmt::format("the text must contain {}", placeholder));
  }
  return text;
}

Result<ChatWording> read(const JsonRef& root) {
  static constexpr std::string_view kMembers[] = {
      "version",      "format",         "tools_section", "response_format_section", "effort_line", "efforts",
      "effort_texts", "default_effort", "tool_result"};
  DI_ASSIGN(const auto members, root.members());
  for (const auto& [key, ref] : members) {
    if (std::find(std::begin(kMembers), std::end(kMembers), key) == std::end(kMembers)) {
      return ref.error("unknown member");
    }
  }
  DI_ASSIGN(const JsonRef version, root.get("version"));
  DI_ASSIGN([[maybe_unused]] const std::int64_t number, version.as_int(1, 1));
  ChatWording out;
  DI_ASSIGN(const JsonRef format, root.get("format"));
  DI_ASSIGN(const std::string format_name, format.as_string());
  if (format_name != "v41" && format_name != "v4") return format.error("use v41 or v4");
  out.format = format_name == "v41" ? ChatFormat::kV41 : ChatFormat::kV4;
  DI_ASSIGN(out.tools_section, text_member(root, "tools_section", "{tool_schemas}"));
  DI_ASSIGN(out.response_format_section, text_member(root, "response_format_section", "{schema}"));
  DI_ASSIGN(out.effort_line, text_member(root, "effort_line", "{effort}"));
  DI_ASSIGN(const std::string tool_result, text_member(root, "tool_result", "{content}"));
  if (!tool_result.empty()) out.tool_result = tool_result;
  if (const auto efforts = root.find("efforts")) {
    DI_ASSIGN(const auto list, efforts->members());
    for (const auto& [name, ref] : list) {
      DI_ASSIGN(const std::int64_t value, ref.as_int(1, 100));
      out.efforts[std::string(name)] = static_cast<int>(value);
    }
  }
  if (const auto texts = root.find("effort_texts")) {
    DI_ASSIGN(const auto list, texts->members());
    for (const auto& [name, ref] : list) {
      DI_ASSIGN(out.effort_texts[std::string(name)], ref.as_string());
    }
  }
  if (const auto chosen = root.find("default_effort")) {
    DI_ASSIGN(out.default_effort, chosen->as_string());
    if (!out.effort_text("").ok())
      return chosen->error("this effort is not among 'efforts' and 'effort_texts'");
  }
  return out;
}

}  // namespace

ChatWording ChatWording::built_in(ChatFormat format) {
  const DsmlTags& tags = dsml_tags(format);
  ChatWording out;
  out.format = format;
  out.tools_section =
      fill_placeholders(kToolsSection, {{"open_calls", std::string(tags.open_calls)},
                                        {"open_invoke", std::string(tags.open_invoke)},
                                        {"open_parameter", std::string(tags.open_parameter)},
                                        {"close_parameter", std::string(tags.close_parameter)},
                                        {"close_invoke", std::string(tags.close_invoke)},
                                        {"close_calls", std::string(tags.close_calls)}});
  out.response_format_section = kResponseFormatSection;
  if (format == ChatFormat::kV41) {
    out.effort_line =
        "Reasoning Effort: {effort} (from 1, answer at once, to 100, think as long as it helps)\n\n";
    out.efforts = {{"low", 50}, {"high", 75}, {"max", 100}};
    out.default_effort = "high";
  } else {
    out.effort_texts = {
        {"low", ""},
        {"high", "Think the problem through step by step before you answer.\n\n"},
        {"max",
         "Think the problem through as thoroughly as you can, and check the result, before you answer.\n\n"}};
    out.default_effort = "low";
  }
  return out;
}

Result<ChatWording> ChatWording::parse(std::string_view json, const std::string& name) {
  auto root = parse_json(json);
  if (!root.ok()) return root.error().at(name);
  auto out = read(JsonRef(*root));
  if (!out.ok()) return out.error().at(name);
  return out;
}

Result<ChatWording> ChatWording::load(const std::string& folder, ChatFormat format_without_file) {
  const std::string path = folder + "/" + kChatWordingFile;
  const auto text = read_text_file(path, kMaxFileBytes);
  if (!text.ok()) {
    if (text.error().code == ErrorCode::kNotFound) return built_in(format_without_file);
    return text.error();
  }
  return parse(*text, path);
}

Result<std::string> ChatWording::effort_text(const std::string& effort) const {
  const std::string& wanted = effort.empty() ? default_effort : effort;
  if (wanted.empty() && effort_line.empty()) return std::string();
  if (const auto text = effort_texts.find(wanted); text != effort_texts.end()) return text->second;
  int number = 0;
  if (const auto named = efforts.find(wanted); named != efforts.end()) {
    number = named->second;
  } else {
    const char* end = wanted.data() + wanted.size();
    const auto [stop, problem] = std::from_chars(wanted.data(), end, number);
    if (problem != std::errc() || stop != end) number = 0;
    // A model with texts of its own for every effort knows no numbers.
    if (!effort_texts.empty() && effort_line.empty()) number = 0;
  }
  if (number < 1 || number > 100) {
    std::string known;
    for (const auto& [name, value] : efforts) known += fmt::format("{}, ", name);
    for (const auto& [name, value] : effort_texts) known += fmt::format("{}, ", name);
    if (effort_texts.empty()) known += "a number from 1 to 100, ";
    known.resize(known.size() - 2);
    return invalid_argument(
        fmt::format("unknown reasoning effort '{}'; this model takes {}", wanted.substr(0, 40), known));
  }
  return fill_placeholders(effort_line, {{"effort", std::to_string(number)}});
}

std::string fill_placeholders(std::string_view text, const std::map<std::string, std::string>& values) {
  std::string out;
  while (!text.empty()) {
    const std::size_t open = text.find('{');
    const std::size_t close = open == std::string_view::npos ? open : text.find('}', open);
    if (close == std::string_view::npos) break;
    const std::string_view name = text.substr(open + 1, std::min(close - open - 1, kMaxPlaceholder + 1));
    const auto value = name.size() > kMaxPlaceholder ? values.end() : values.find(std::string(name));
    if (value == values.end()) {
      out += text.substr(0, open + 1);
      text.remove_prefix(open + 1);
    } else {
      out += text.substr(0, open);
      out += value->second;
      text.remove_prefix(close + 1);
    }
  }
  out += text;
  return out;
}

}  // namespace deepinfer
