#include "api/model_codec.h"

#include <fmt/format.h>

#include "tokenizer/chat_parser.h"
#include "tokenizer/chat_wording.h"

namespace deepinfer {

Result<std::unique_ptr<ModelCodec>> ModelCodec::load(const std::string& folder) {
  DI_ASSIGN(Tokenizer tokenizer, Tokenizer::load(folder + "/tokenizer.json"));
  DI_ASSIGN(ChatWording wording, ChatWording::load(folder, ChatEncoder::format_of(tokenizer)));
  DI_ASSIGN(ChatEncoder chat, ChatEncoder::create(tokenizer, std::move(wording)));
  return std::unique_ptr<ModelCodec>(new ModelCodec(std::move(tokenizer), std::move(chat)));
}

Result<std::vector<TokenId>> ModelCodec::encode(const ApiRequest& request) const {
  if (request.endpoint == Endpoint::kChat) {
    DI_ASSIGN(const ChatPrompt prompt, chat_.render(request.conversation, request.chat));
    if (!prompt.images.empty()) return unsupported("pictures are not available for this model", "/messages");
    return tokenizer_.encode_segments(prompt.segments);
  }
  if (request.prompt_is_tokens) return request.prompt_tokens;
  std::vector<TokenId> out = {chat_.markers().bos};
  tokenizer_.encode_to(request.prompt, {}, out);
  return out;
}

ChatAnswer ModelCodec::parse_answer(const ApiRequest& request, std::string_view text) const {
  ParsedAnswer parsed = deepinfer::parse_answer(
      text, {.format = chat_.wording().format, .starts_in_reasoning = request.thinking()});
  ChatAnswer out;
  out.content = std::move(parsed.content);
  out.reasoning = std::move(parsed.reasoning);
  for (ParsedAnswer::Call& call : parsed.calls) {
    if (!call.complete) out.warnings.push_back(fmt::format("the call of {} was cut off", call.name));
    out.calls.push_back(
        {fmt::format("call_{}", out.calls.size()), std::move(call.name), std::move(call.arguments)});
  }
  if (!parsed.error.empty()) out.warnings.push_back("malformed tool call: " + parsed.error);
  return out;
}

}  // namespace deepinfer
