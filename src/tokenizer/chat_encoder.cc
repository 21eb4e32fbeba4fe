#include "tokenizer/chat_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "io/json.h"
#include "tokenizer/python_json.h"

namespace deepinfer {
namespace {

struct MarkerName {
  TokenId ChatEncoder::Markers::*member;
  const char* text;
};
constexpr MarkerName kMarkerNames[] = {{&ChatEncoder::Markers::bos, "<｜begin▁of▁sentence｜>"},
                                       {&ChatEncoder::Markers::eos, "<｜end▁of▁sentence｜>"},
                                       {&ChatEncoder::Markers::system, "<｜System｜>"},
                                       {&ChatEncoder::Markers::user, "<｜User｜>"},
                                       {&ChatEncoder::Markers::assistant, "<｜Assistant｜>"},
                                       {&ChatEncoder::Markers::think, "<think>"},
                                       {&ChatEncoder::Markers::end_think, "</think>"},
                                       {&ChatEncoder::Markers::dsml, "｜DSML｜"},
                                       {&ChatEncoder::Markers::latest_reminder, "<｜latest_reminder｜>"},
                                       {&ChatEncoder::Markers::image, "<｜deepseek_image｜>"}};

bool is_user_like(const Conversation& chat, std::size_t i) {
  const ChatRole role = chat.messages[i].role;
  return role == ChatRole::kUser || role == ChatRole::kTool || role == ChatRole::kDeveloper ||
         (role == ChatRole::kSystem && i > 0);
}

std::string pointer_to(std::size_t message) {
  return fmt::format("/messages/{}", message);
}

// Renders one conversation. Writes through token(), model_text() (our wording: markers in it count) and
// user_text().
class Renderer {
 public:
  Renderer(const ChatEncoder& encoder, const Conversation& chat, const ChatOptions& options)
      : encoder_(encoder),
        markers_(encoder.markers()),
        wording_(encoder.wording()),
        chat_(chat),
        options_(options) {}

  Result<ChatPrompt> run() {
    const std::size_t count = chat_.messages.size();
    if (count == 0) return invalid_argument("there are no messages", "/messages");
    const bool ends_in_assistant = chat_.messages.back().role == ChatRole::kAssistant;
    if (ends_in_assistant && !options_.continue_final_message) {
      return invalid_argument(
          "the last message is an assistant's, so there is nothing to answer; add a user message or set "
          "continue_final_message",
          pointer_to(count - 1));
    }
    if (!ends_in_assistant && options_.continue_final_message) {
      return invalid_argument("continue_final_message needs an assistant message at the end",
                              pointer_to(count - 1));
    }
    last_user_like_ = count;
    for (std::size_t i = 0; i < count; ++i) {
      if (is_user_like(chat_, i)) last_user_like_ = i;
    }
    drops_reasoning_ = options_.thinking && options_.drop_thinking && !declares_tools();

    token(markers_.bos);
    DI_TRY(opening());
    std::size_t i = chat_.messages[0].role == ChatRole::kSystem ? 1 : 0;
    while (i < count) {
      DI_TRY(item(i));
    }
    if (!ends_in_assistant) header(options_.thinking);
    prompt_.starts_in_reasoning = !ends_in_assistant ? options_.thinking : false;
    flush();
    return std::move(prompt_);
  }

 private:
  bool declares_tools() const {
    return !chat_.tools.empty() || std::any_of(chat_.messages.begin(), chat_.messages.end(),
                                               [](const ChatMessage& m) { return !m.tools.empty(); });
  }

  void token(TokenId id) {
    flush();
    prompt_.segments.push_back({PromptSegment::Kind::kToken, {}, id, -1});
  }

  void user_text(std::string_view text) { text_ += text; }

  // Text of the model's own wording: each marker in it becomes its token.
  void model_text(std::string_view text) {
    while (!text.empty()) {
      std::size_t best = std::string_view::npos, size = 0;
      TokenId id = -1;
      for (const MarkerName& m : kMarkerNames) {
        if (markers_.*m.member < 0) continue;
        const std::size_t at = text.find(m.text);
        if (at < best) {
          best = at;
          size = std::string_view(m.text).size();
          id = markers_.*m.member;
        }
      }
      if (id < 0) break;
      user_text(text.substr(0, best));
      token(id);
      text.remove_prefix(best + size);
    }
    user_text(text);
  }

  // The wording with one placeholder filled by text from the request, which stays plain text.
  void template_text(std::string_view text, std::string_view placeholder, std::string_view value) {
    const std::size_t at = text.find(placeholder);
    model_text(text.substr(0, at));
    if (at == std::string_view::npos) return;
    user_text(value);
    model_text(text.substr(at + placeholder.size()));
  }

  void flush() {
    if (text_.empty()) return;
    prompt_.segments.push_back({PromptSegment::Kind::kText, std::move(text_), 0, -1});
    text_.clear();
  }

  Status content(std::size_t message) {
    for (const ContentPart& part : chat_.messages[message].content) {
      if (part.kind == ContentPart::Kind::kText) {
        user_text(part.text);
        continue;
      }
      if (markers_.image < 0) return unsupported("this model takes no pictures", pointer_to(message));
      flush();
      prompt_.segments.push_back({PromptSegment::Kind::kImage,
                                  {},
                                  markers_.image,
                                  static_cast<std::int32_t>(prompt_.images.size())});
      prompt_.images.push_back(part.text);
    }
    return {};
  }

  Status tools(const std::vector<ToolSpec>& list) {
    if (list.empty() || wording_.tools_section.empty()) return {};
    if (markers_.dsml < 0)
      return unsupported("this model's vocabulary has no tool-call marker, so it takes no tools", "/tools");
    std::string schemas;
    for (const ToolSpec& tool : list) {
      if (!schemas.empty()) schemas += '\n';
      schemas += tool.json;
    }
    user_text("\n\n");
    template_text(wording_.tools_section, "{tool_schemas}", schemas);
    return {};
  }

  // The system item at the start: effort line, system text, tools, response format.
  Status opening() {
    const bool system_first = chat_.messages[0].role == ChatRole::kSystem;
    const bool schema = !chat_.response_schema.empty() && !wording_.response_format_section.empty();
    const bool item = system_first || options_.thinking || !chat_.tools.empty() || schema;
    if (!item) return {};
    if (wording_.format == ChatFormat::kV41) token(markers_.system);
    if (options_.thinking) {
      auto effort = wording_.effort_text(options_.effort);
      if (!effort.ok()) return effort.error().at("/reasoning_effort");
      model_text(*effort);
    }
    if (system_first) DI_TRY(content(0));
    DI_TRY(tools(chat_.tools));
    if (system_first) DI_TRY(tools(chat_.messages[0].tools));
    if (schema) {
      user_text("\n\n");
      template_text(wording_.response_format_section, "{schema}", chat_.response_schema);
    }
    return {};
  }

  void header(bool reasoning) {
    token(markers_.assistant);
    token(reasoning ? markers_.think : markers_.end_think);
  }

  // Renders the item that starts at message i and moves i behind it.
  Status item(std::size_t& i) {
    switch (chat_.messages[i].role) {
      case ChatRole::kUser:
      case ChatRole::kTool:
        return user_turn(i);
      case ChatRole::kSystem:
        if (wording_.format == ChatFormat::kV41) token(markers_.system);
        DI_TRY(content(i));
        DI_TRY(tools(chat_.messages[i].tools));
        ++i;
        return {};
      case ChatRole::kLatestReminder:
        if (markers_.latest_reminder < 0)
          return unsupported("this model's vocabulary has no reminder marker", pointer_to(i));
        token(markers_.latest_reminder);
        DI_TRY(content(i));
        ++i;
        return {};
      case ChatRole::kDeveloper:
        if (!(drops_reasoning_ && i < last_user_like_)) {
          token(markers_.user);
          DI_TRY(content(i));
          DI_TRY(tools(chat_.messages[i].tools));
        }
        ++i;
        return {};
      case ChatRole::kAssistant:
        return assistant_turn(i++);
    }
    return {};
  }

  // Neighbouring user and tool messages are one turn. Its tool results stand in the order of the calls they
  // answer; a result that answers none of them comes last.
  Status user_turn(std::size_t& i) {
    const std::size_t first = i;
    std::vector<std::size_t> results;
    for (; i < chat_.messages.size(); ++i) {
      const ChatRole role = chat_.messages[i].role;
      if (role == ChatRole::kTool) {
        results.push_back(i);
      } else if (role != ChatRole::kUser) {
        break;
      }
    }
    std::unordered_map<std::string_view, std::size_t> place;
    if (const ChatMessage* caller = caller_before(first)) {
      for (std::size_t k = 0; k < caller->tool_calls.size(); ++k) place.emplace(caller->tool_calls[k].id, k);
    }
    const auto place_of = [&](std::size_t message) {
      const std::string& id = chat_.messages[message].tool_call_id;
      const auto it = place.find(id);
      return it == place.end() || id.empty() ? chat_.messages.size() : it->second;
    };
    std::stable_sort(results.begin(), results.end(),
                     [&](std::size_t a, std::size_t b) { return place_of(a) < place_of(b); });
    token(markers_.user);
    std::size_t next_result = 0;
    for (std::size_t k = first; k < i; ++k) {
      if (k > first) user_text("\n\n");
      if (chat_.messages[k].role == ChatRole::kUser) {
        DI_TRY(content(k));
        continue;
      }
      const std::string_view around = wording_.tool_result;
      const std::size_t hole = around.find("{content}");
      model_text(around.substr(0, hole));
      DI_TRY(content(results[next_result++]));
      if (hole != std::string_view::npos)
        model_text(around.substr(hole + std::string_view("{content}").size()));
    }
    return {};
  }

  const ChatMessage* caller_before(std::size_t i) const {
    while (i-- > 0) {
      if (chat_.messages[i].role == ChatRole::kAssistant) return &chat_.messages[i];
    }
    return nullptr;
  }

  Status assistant_turn(std::size_t i) {
    const ChatMessage& message = chat_.messages[i];
    const bool final = i + 1 == chat_.messages.size();
    const bool keeps_reasoning =
        options_.thinking &&
        (!drops_reasoning_ || last_user_like_ == chat_.messages.size() || i > last_user_like_);
    header(keeps_reasoning);
    if (keeps_reasoning) {
      user_text(message.reasoning);
      token(markers_.end_think);
    }
    DI_TRY(content(i));
    DI_TRY(calls(i));
    if (!(final && options_.continue_final_message)) token(markers_.eos);
    return {};
  }

  Status calls(std::size_t i) {
    const std::vector<ToolCall>& list = chat_.messages[i].tool_calls;
    if (list.empty()) return {};
    if (markers_.dsml < 0)
      return unsupported("this model's vocabulary has no tool-call marker", pointer_to(i));
    const DsmlTags& tags = dsml_tags(wording_.format);
    model_text(kBeforeCalls);
    model_text(tags.open_calls);
    user_text("\n");
    for (std::size_t k = 0; k < list.size(); ++k) {
      const std::string where = fmt::format("{}/tool_calls/{}", pointer_to(i), k);
      if (!is_dsml_name(list[k].name))
        return invalid_argument("the function's name cannot be spelled in a call", where);
      model_text(tags.open_invoke);
      user_text(list[k].name);
      user_text("\">\n");
      DI_TRY(arguments(list[k], tags, where));
      model_text(tags.close_invoke);
      user_text("\n");
    }
    model_text(tags.close_calls);
    return {};
  }

  Status arguments(const ToolCall& call, const DsmlTags& tags, const std::string& where) {
    const auto parsed = parse_json(call.arguments.empty() ? "{}" : std::string_view(call.arguments));
    if (!parsed.ok()) return parsed.error().at(where + "/function/arguments");
    if (!parsed->is_object())
      return invalid_argument("the arguments must be a JSON object", where + "/function/arguments");
    for (const auto& [name, value] : parsed->as_object()) {
      if (!is_dsml_name(name))
        return invalid_argument("an argument's name cannot be spelled in a call", where);
      model_text(tags.open_parameter);
      user_text(name);
      user_text(value.is_string() ? "\" string=\"true\">" : "\" string=\"false\">");
      user_text(value.is_string() ? value.as_string() : python_json_dumps(value));
      model_text(tags.close_parameter);
      user_text("\n");
    }
    return {};
  }

  const ChatEncoder& encoder_;
  const ChatEncoder::Markers& markers_;
  const ChatWording& wording_;
  const Conversation& chat_;
  const ChatOptions& options_;
  std::size_t last_user_like_ = 0;  // messages.size(): there is none
  bool drops_reasoning_ = false;
  ChatPrompt prompt_;
  std::string text_;
};

}  // namespace

ChatFormat ChatEncoder::format_of(const Tokenizer& tokenizer) {
  return tokenizer.find_token("<｜System｜>") ? ChatFormat::kV41 : ChatFormat::kV4;
}

Result<ChatEncoder> ChatEncoder::create(const Tokenizer& tokenizer, ChatWording wording) {
  ChatEncoder out(tokenizer, std::move(wording));
  for (const MarkerName& m : kMarkerNames) {
    const auto id = tokenizer.find_token(m.text);
    if (id && tokenizer.is_added(*id)) out.markers_.*m.member = *id;
  }
  using M = Markers;
  for (TokenId M::*needed :
       {&M::bos, &M::eos, &M::system, &M::user, &M::assistant, &M::think, &M::end_think}) {
    if (out.markers_.*needed >= 0 || (needed == &M::system && out.wording_.format == ChatFormat::kV4))
      continue;
    for (const MarkerName& m : kMarkerNames) {
      if (m.member != needed) continue;
      return unsupported(fmt::format("the vocabulary has no token '{}', which the chat format {} needs",
                                     m.text, chat_format_name(out.wording_.format)));
    }
  }
  return out;
}

Result<ChatPrompt> ChatEncoder::render(const Conversation& conversation, const ChatOptions& options) const {
  return Renderer(*this, conversation, options).run();
}

std::string ChatEncoder::to_text(const ChatPrompt& prompt) const {
  std::string out;
  for (const PromptSegment& segment : prompt.segments) {
    if (segment.kind == PromptSegment::Kind::kText) {
      out += segment.text;
    } else {
      out += tokenizer_.token_bytes(segment.token);
    }
  }
  return out;
}

}  // namespace deepinfer
