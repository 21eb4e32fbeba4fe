#include "tokenizer/chat_parser.h"

#include <algorithm>

#include "base/check.h"
#include "io/json.h"
#include "tokenizer/python_json.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

constexpr std::string_view kThink = "<think>", kEndThink = "</think>";
constexpr std::string_view kOpen = "<｜DSML｜", kClose = "</｜DSML｜";
// A tag's variable part: a name of at most 256 bytes and what surrounds it.
constexpr std::size_t kMaxHeadBytes = 300;
// Below the default of parse_json, so that the arguments as a whole, one level deeper, parse by default.
constexpr JsonLimits kValueLimits = {.max_depth = 100};

// Length of the longest suffix of `text` that is a proper prefix of `pattern`.
std::size_t partial_match(std::string_view text, std::string_view pattern) {
  for (std::size_t n = std::min(text.size(), pattern.size() - 1); n > 0; --n) {
    if (text.ends_with(pattern.substr(0, n))) return n;
  }
  return 0;
}

// Length of the suffix that may turn out to belong to a marker.
std::size_t partial_marker(std::string_view text) {
  return std::max({partial_match(text, kOpen), partial_match(text, kClose), partial_match(text, kDsml)});
}

// The same with the line breaks that stand before a call block.
std::size_t partial_block(std::string_view text) {
  static const std::string open = std::string(kBeforeCalls) + std::string(kOpen);
  return std::max({partial_marker(text), partial_match(text, open),
                   partial_match(text, std::string_view(open).substr(1))});
}

// Where the marker begins, its bracket included; npos without one.
std::size_t find_marker(std::string_view text, std::size_t from) {
  const std::size_t at = text.find(kDsml, from);
  if (at == std::string_view::npos) return at;
  const std::string_view before = text.substr(0, at);
  if (before.ends_with("</")) return at - 2;
  return before.ends_with("<") ? at - 1 : at;
}

}  // namespace

ChatStreamParser::ChatStreamParser(const ChatParserOptions& options)
    : format_(options.format), state_(options.starts_in_reasoning ? State::kReasoning : State::kContent) {}

void ChatStreamParser::consume(std::size_t size) {
  at_ += size;
  searched_ = 0;
}

void ChatStreamParser::emit(ChatEvent::Kind kind, std::string_view text, std::vector<ChatEvent>& out) {
  if (text.empty()) return;
  const int call = kind == ChatEvent::Kind::kArguments ? call_count_ - 1 : -1;
  if (!out.empty() && out.back().kind == kind && out.back().call == call) {
    out.back().text += text;
  } else {
    out.push_back({kind, call, std::string(text)});
  }
}

ChatStreamParser::Found ChatStreamParser::take(std::string_view tag) {
  const std::string_view text = rest();
  if (text.starts_with(tag)) {
    consume(tag.size());
    return Found::kYes;
  }
  return tag.starts_with(text) ? Found::kNotYet : Found::kNo;
}

void ChatStreamParser::skip_white_space() {
  const std::size_t size = rest().find_first_not_of(" \t\r\n");
  consume(size == std::string_view::npos ? rest().size() : size);
}

void ChatStreamParser::end_call(bool complete, std::vector<ChatEvent>& out) {
  if (text_open_) emit(ChatEvent::Kind::kArguments, "\"", out);
  emit(ChatEvent::Kind::kArguments, object_open_ ? "}" : "{}", out);
  out.push_back({ChatEvent::Kind::kCallEnd, call_count_ - 1, {}, complete});
  call_open_ = text_open_ = object_open_ = false;
  parameters_.clear();
}

void ChatStreamParser::fail(std::string message, std::vector<ChatEvent>& out) {
  if (call_open_) end_call(false, out);
  out.push_back({ChatEvent::Kind::kError, -1, std::move(message)});
  state_ = State::kFailed;
  consume(rest().size());
}

void ChatStreamParser::push(std::string_view bytes, std::vector<ChatEvent>& out) {
  if (state_ == State::kFailed) return;
  utf8_.push(bytes, buffer_);
  while (step(out)) {
  }
  // Keep the cost of moving the unread rest below that of having read what lies before it.
  if (at_ >= buffer_.size() - at_) {
    buffer_.erase(0, at_);
    at_ = 0;
  }
}

void ChatStreamParser::push_token(const Tokenizer& tokenizer, TokenId id, std::vector<ChatEvent>& out) {
  const std::string_view text = tokenizer.token_bytes(id);
  if (tokenizer.is_added(id) && text != kThink && text != kEndThink && text != kDsml) return;
  push(text, out);
}

bool ChatStreamParser::step(std::vector<ChatEvent>& out) {
  switch (state_) {
    case State::kReasoning:
      return step_reasoning(out);
    case State::kContent:
      return step_content(out);
    case State::kBlockStart:
      return step_block_start(out);
    case State::kInCalls:
      return step_in_calls(out);
    case State::kInvokeName:
      return step_invoke_name(out);
    case State::kInInvoke:
      return step_in_invoke(out);
    case State::kParameterHead:
      return step_parameter_head(out);
    case State::kTextValue:
      return step_text_value(out);
    case State::kJsonValue:
      return step_json_value(out);
    case State::kAfterCalls:
      return step_after_calls(out);
    case State::kFailed:
      return false;
  }
  return false;
}

bool ChatStreamParser::step_reasoning(std::vector<ChatEvent>& out) {
  const std::string_view text = rest();
  const std::size_t end = text.find(kEndThink);
  if (end != std::string_view::npos) {
    emit(ChatEvent::Kind::kReasoning, text.substr(0, end), out);
    consume(end + kEndThink.size());
    state_ = State::kContent;
    return true;
  }
  const std::size_t sure = text.size() - partial_match(text, kEndThink);
  emit(ChatEvent::Kind::kReasoning, text.substr(0, sure), out);
  consume(sure);
  return false;
}

bool ChatStreamParser::step_content(std::vector<ChatEvent>& out) {
  const std::string_view text = rest();
  const std::size_t marker = find_marker(text, 0);
  if (marker == std::string_view::npos) {
    const std::size_t sure = text.size() - partial_block(text);
    emit(ChatEvent::Kind::kContent, text.substr(0, sure), out);
    consume(sure);
    return false;
  }
  std::size_t end = marker;
  if (text.substr(marker).starts_with(kOpen)) {
    while (end > 0 && marker - end < kBeforeCalls.size() && text[end - 1] == '\n') --end;
  }
  emit(ChatEvent::Kind::kContent, text.substr(0, end), out);
  consume(marker);
  state_ = State::kBlockStart;
  return true;
}

bool ChatStreamParser::step_block_start(std::vector<ChatEvent>& out) {
  const ChatFormat other = format_ == ChatFormat::kV41 ? ChatFormat::kV4 : ChatFormat::kV41;
  const std::string_view wrong = dsml_tags(other).open_calls;
  switch (take(dsml_tags(format_).open_calls)) {
    case Found::kYes:
      block_calls_ = 0;
      state_ = State::kInCalls;
      return true;
    case Found::kNotYet:
      return false;
    case Found::kNo:
      break;
  }
  if (rest().starts_with(wrong)) {
    fail(std::string("the tool calls are spelled as in the chat format ") + chat_format_name(other), out);
  } else if (!wrong.starts_with(rest())) {
    fail("a tool-call marker stands where no call begins", out);
  }
  return false;
}

bool ChatStreamParser::step_in_calls(std::vector<ChatEvent>& out) {
  skip_white_space();
  const DsmlTags& tags = dsml_tags(format_);
  const Found invoke = take(tags.open_invoke);
  if (invoke == Found::kYes) {
    state_ = State::kInvokeName;
    return true;
  }
  const Found close = take(tags.close_calls);
  if (close == Found::kYes) {
    if (block_calls_ == 0) {
      fail("a tool-call block holds no call", out);
      return false;
    }
    state_ = State::kAfterCalls;
    return true;
  }
  if (invoke == Found::kNo && close == Found::kNo)
    fail("a tool call is not well formed: a call or the end of the block was expected", out);
  return false;
}

bool ChatStreamParser::step_invoke_name(std::vector<ChatEvent>& out) {
  const std::string_view text = rest();
  const std::size_t end = text.find('>');
  if (end == std::string_view::npos && text.size() <= kMaxHeadBytes) return false;
  const std::string_view head = text.substr(0, end);
  const bool quoted = head.ends_with("\"");
  const std::string_view name = head.substr(0, head.size() - (quoted ? 1 : 0));
  if (end == std::string_view::npos || !quoted || !is_dsml_name(name)) {
    fail("a tool call is not well formed: the function's name cannot be read", out);
    return false;
  }
  out.push_back({ChatEvent::Kind::kCallBegin, call_count_++, std::string(name)});
  ++block_calls_;
  call_open_ = true;
  consume(end + 1);
  state_ = State::kInInvoke;
  return true;
}

bool ChatStreamParser::step_in_invoke(std::vector<ChatEvent>& out) {
  skip_white_space();
  const DsmlTags& tags = dsml_tags(format_);
  const Found parameter = take(tags.open_parameter);
  if (parameter == Found::kYes) {
    state_ = State::kParameterHead;
    return true;
  }
  const Found close = take(tags.close_invoke);
  if (close == Found::kYes) {
    end_call(true, out);
    state_ = State::kInCalls;
    return true;
  }
  if (parameter == Found::kNo && close == Found::kNo)
    fail("a tool call is not well formed: an argument or the end of the call was expected", out);
  return false;
}

bool ChatStreamParser::step_parameter_head(std::vector<ChatEvent>& out) {
  const std::string_view text = rest();
  const std::size_t end = text.find('>');
  if (end == std::string_view::npos && text.size() <= kMaxHeadBytes) return false;
  std::string_view name = text.substr(0, end);
  bool known = false, is_text = false;
  for (const std::string_view kind :
       {std::string_view("\" string=\"true\""), std::string_view("\" string=\"false\"")}) {
    if (end == std::string_view::npos || !name.ends_with(kind)) continue;
    name.remove_suffix(kind.size());
    known = true;
    is_text = kind.find("true") != std::string_view::npos;
    break;
  }
  if (!known || !is_dsml_name(name)) {
    fail("a tool call is not well formed: an argument's head cannot be read", out);
    return false;
  }
  if (std::find(parameters_.begin(), parameters_.end(), name) != parameters_.end()) {
    fail("a tool call gives one argument twice", out);
    return false;
  }
  parameter_ = name;
  parameters_.push_back(parameter_);
  consume(end + 1);
  state_ = is_text ? State::kTextValue : State::kJsonValue;
  if (is_text) {
    begin_argument(out);
    emit(ChatEvent::Kind::kArguments, "\"", out);
    text_open_ = true;
  }
  return true;
}

void ChatStreamParser::begin_argument(std::vector<ChatEvent>& out) {
  std::string text = object_open_ ? ", \"" : "{\"";
  append_json_escaped(text, parameter_);
  text += "\": ";
  object_open_ = true;
  emit(ChatEvent::Kind::kArguments, text, out);
}

bool ChatStreamParser::step_text_value(std::vector<ChatEvent>& out) {
  const std::string_view text = rest();
  const std::size_t marker = find_marker(text, 0);
  const std::size_t sure = marker == std::string_view::npos ? text.size() - partial_marker(text) : marker;
  std::string escaped;
  append_json_escaped(escaped, text.substr(0, sure));
  emit(ChatEvent::Kind::kArguments, escaped, out);
  consume(sure);
  if (marker == std::string_view::npos) return false;
  switch (take(dsml_tags(format_).close_parameter)) {
    case Found::kYes:
      emit(ChatEvent::Kind::kArguments, "\"", out);
      text_open_ = false;
      state_ = State::kInInvoke;
      return true;
    case Found::kNotYet:
      return false;
    case Found::kNo:
      fail("a tool call is not well formed: a marker stands inside an argument", out);
  }
  return false;
}

bool ChatStreamParser::step_json_value(std::vector<ChatEvent>& out) {
  const std::string_view text = rest();
  const std::size_t marker = find_marker(text, searched_);
  if (marker == std::string_view::npos) {
    searched_ = text.size() - partial_marker(text);
    return false;
  }
  const std::string value(text.substr(0, marker));
  const std::string_view tag = text.substr(marker), close = dsml_tags(format_).close_parameter;
  if (!tag.starts_with(close)) {
    if (!close.starts_with(tag))
      fail("a tool call is not well formed: a marker stands inside an argument", out);
    return false;
  }
  consume(marker + close.size());
  begin_argument(out);
  const std::size_t first = value.find_first_not_of(" \t\r\n"), last = value.find_last_not_of(" \t\r\n");
  if (first != std::string::npos && parse_json(value, kValueLimits).ok()) {
    emit(ChatEvent::Kind::kArguments, std::string_view(value).substr(first, last - first + 1), out);
  } else {  // announced as JSON and is not: the caller still gets the text
    std::string quoted = "\"";
    append_json_escaped(quoted, value);
    emit(ChatEvent::Kind::kArguments, quoted + "\"", out);
  }
  state_ = State::kInInvoke;
  return true;
}

bool ChatStreamParser::step_after_calls(std::vector<ChatEvent>& out) {
  skip_white_space();
  if (!rest().empty()) fail("there is text behind the tool calls", out);
  return false;
}

void ChatStreamParser::finish(std::vector<ChatEvent>& out) {
  if (state_ == State::kFailed) return;
  utf8_.flush(buffer_);
  while (step(out)) {
  }
  const std::string_view text = rest();
  switch (state_) {
    case State::kFailed:
    case State::kAfterCalls:
      return;
    case State::kReasoning:
      emit(ChatEvent::Kind::kReasoning, text, out);
      break;
    case State::kContent: {
      // A cut-off "<" is text; what already shows a part of the marker's own characters is not.
      const std::size_t marker = partial_match(text, kDsml);
      if (marker > std::string_view("｜").size()) {
        fail("the answer ends inside a tool-call marker", out);
        return;
      }
      emit(ChatEvent::Kind::kContent, text, out);
      break;
    }
    default:
      fail("the answer ends inside a tool call", out);
      return;
  }
  consume(text.size());
}

void ParsedAnswer::add(const ChatEvent& event) {
  switch (event.kind) {
    case ChatEvent::Kind::kReasoning:
      reasoning += event.text;
      return;
    case ChatEvent::Kind::kContent:
      content += event.text;
      return;
    case ChatEvent::Kind::kCallBegin:
      calls.push_back({event.text, {}, false});
      return;
    case ChatEvent::Kind::kArguments:
    case ChatEvent::Kind::kCallEnd: {
      DI_CHECK(event.call >= 0 && static_cast<std::size_t>(event.call) < calls.size(),
               "an event of a call that has not begun");
      Call& call = calls[static_cast<std::size_t>(event.call)];
      if (event.kind == ChatEvent::Kind::kArguments) {
        call.arguments += event.text;
      } else {
        call.complete = event.complete;
      }
      return;
    }
    case ChatEvent::Kind::kError:
      error = event.text;
      return;
  }
}

ParsedAnswer parse_answer(std::string_view bytes, const ChatParserOptions& options) {
  ChatStreamParser parser(options);
  std::vector<ChatEvent> events;
  parser.push(bytes, events);
  parser.finish(events);
  ParsedAnswer out;
  for (const ChatEvent& event : events) out.add(event);
  return out;
}

}  // namespace deepinfer
