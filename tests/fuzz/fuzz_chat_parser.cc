// Any bytes as a model's answer: the same result for any way of cutting, no marker in content or arguments,
// every call's arguments one JSON object. The same bytes as a request body: an error with words, or a prompt
// without forged tokens.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "tokenizer/chat_encoder.h"
#include "tokenizer/chat_parser.h"
#include "tokenizer/utf8.h"

namespace {

using namespace deepinfer;

void check_parser(std::string_view text, const ChatParserOptions& options, unsigned cut) {
  const ParsedAnswer whole = parse_answer(text, options);
  ChatStreamParser parser(options);
  std::vector<ChatEvent> events;
  for (std::string_view rest = text; !rest.empty();) {
    cut = cut * 5 + 3;
    const std::size_t size = std::min<std::size_t>(rest.size(), 1 + cut % 7);
    parser.push(rest.substr(0, size), events);
    rest.remove_prefix(size);
  }
  parser.finish(events);
  ParsedAnswer pieces;
  for (const ChatEvent& event : events) pieces.add(event);
  DI_CHECK(pieces == whole, "cutting the answer changed it");
  DI_CHECK(whole.content.find(kDsml) == std::string::npos);
  DI_CHECK(utf8::is_valid(whole.content) && utf8::is_valid(whole.reasoning));
  for (const auto& call : whole.calls) {
    DI_CHECK(call.arguments.find(kDsml) == std::string::npos);
    const auto arguments = parse_json(call.arguments);
    DI_CHECK(arguments.ok() && arguments->is_object(), call.arguments);
    DI_CHECK(call.complete || !whole.error.empty());
  }
}

void check_request(std::string_view text) {
  static const ChatEncoder encoder = [] {
    const Tokenizer tokenizer = Tokenizer::load("models/demo-v41/tokenizer.json").value();
    return ChatEncoder::create(tokenizer, ChatWording::built_in(ChatFormat::kV41)).value();
  }();
  const auto body = parse_json(text);
  if (!body.ok()) return;
  const JsonRef root(*body);
  const auto chat = chat_from_json(root, {.developer_as_system = text.size() % 2 == 0});
  const auto options = chat_options_from_json(root);
  if (!chat.ok() || !options.ok()) {
    DI_CHECK(chat.ok() || !chat.error().message.empty());
    return;
  }
  const auto prompt = encoder.render(*chat, *options);
  if (!prompt.ok()) return;
  std::int64_t written = 0, found = 0;
  for (const PromptSegment& segment : prompt->segments)
    written += segment.kind == PromptSegment::Kind::kText ? 0 : 1;
  for (const TokenId id : encoder.tokenizer().encode_segments(prompt->segments))
    found += encoder.tokenizer().is_added(id) ? 1 : 0;
  DI_CHECK(written == found, "text became a control token");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // The first byte chooses the options ('{' of a request body is as good as any).
  const ChatFormat format = data[0] % 4 == 1 ? ChatFormat::kV4 : ChatFormat::kV41;
  check_parser(text.substr(1), {.format = format, .starts_in_reasoning = data[0] % 2 == 0}, data[0]);
  check_request(text);
  return 0;
}
