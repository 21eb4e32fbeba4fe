// Prints the prompt a request body becomes, to be compared with a checkpoint's own encoder
// (docs/chat-wording.md). usage: chat_prompt MODEL-FOLDER REQUEST.json
#include <cstdio>
#include <string>

#include "io/json.h"
#include "io/mmap_file.h"
#include "tokenizer/chat_encoder.h"

namespace {

using namespace deepinfer;

Result<std::string> prompt_text(const std::string& folder, const std::string& request) {
  DI_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(folder + "/tokenizer.json"));
  DI_ASSIGN(ChatWording wording, ChatWording::load(folder, ChatEncoder::format_of(tokenizer)));
  DI_ASSIGN(const ChatEncoder encoder, ChatEncoder::create(tokenizer, std::move(wording)));
  DI_ASSIGN(const std::string text, read_text_file(request, std::size_t{1} << 30));
  DI_ASSIGN(const Json body, parse_json(text));
  DI_ASSIGN(const Conversation chat, chat_from_json(JsonRef(body)));
  DI_ASSIGN(const ChatOptions options, chat_options_from_json(JsonRef(body)));
  DI_ASSIGN(const ChatPrompt prompt, encoder.render(chat, options));
  return encoder.to_text(prompt);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: chat_prompt MODEL-FOLDER REQUEST.json\n");
    return 2;
  }
  const auto text = prompt_text(argv[1], argv[2]);
  if (!text.ok()) {
    std::fprintf(stderr, "chat_prompt: %s\n", text.error().to_string().c_str());
    return 1;
  }
  std::fwrite(text->data(), 1, text->size(), stdout);
  return 0;
}
