// deepinfer chat: a conversation on the terminal, or a line a turn from a pipe.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "api/session.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/generate.h"
#include "cli/options.h"
#include "cli/signals.h"
#include "tokenizer/chat_parser.h"

namespace deepinfer::cli {
namespace {

constexpr const char* kHelp =
    "/reset              forget the conversation\n"
    "/system [TEXT]      set or remove the system text (and start over)\n"
    "/thinking on|off    think before answering\n"
    "/effort E           how long to think: low, high, max or 1..100\n"
    "/temperature T      0 = always the most probable token\n"
    "/help, /quit\n";

struct ChatCommandOptions {
  SessionOptions session;
  RequestDefaults defaults;
  std::string system;
};

class Chat {
 public:
  Chat(Session& session, ChatCommandOptions& options)
      : session_(session),
        options_(options),
        terminal_(::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1) {
    reset();
  }

  int run(const std::atomic<bool>& stop) {
    if (terminal_)
      std::printf("%s. /help lists the commands, an empty line or Ctrl-D ends.\n",
                  session_.model_name().c_str());
    int failed = 0;
    for (std::string line;;) {
      if (terminal_) {
        std::fputs("> ", stdout);
        std::fflush(stdout);
      }
      if (!std::getline(std::cin, line) || (terminal_ && line.empty())) break;
      if (line.empty()) continue;
      if (line == "/quit" || line == "/exit") break;
      if (line.front() == '/') {
        command(line);
        continue;
      }
      if (!answer(line, stop)) ++failed;
      if (stop && !terminal_) return kExitInterrupted;
      clear_stop_signal();
    }
    return failed > 0 ? kExitSomeFailed : kExitOk;
  }

 private:
  void reset() {
    conversation_ = {};
    if (!options_.system.empty()) add(ChatRole::kSystem, options_.system);
  }

  void add(ChatRole role, const std::string& text) {
    ChatMessage message;
    message.role = role;
    message.content.push_back({ContentPart::Kind::kText, text});
    conversation_.messages.push_back(std::move(message));
  }

  void command(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string value = space == std::string::npos ? "" : line.substr(space + 1);
    ChatOptions& chat = options_.defaults.chat;
    if (name == "/reset") {
      reset();
    } else if (name == "/system") {
      options_.system = value;
      reset();
    } else if (name == "/thinking" && (value == "on" || value == "off")) {
      chat.thinking = value == "on";
    } else if (name == "/effort") {
      chat.effort = value;
    } else if (double t = 0; name == "/temperature" && CLI::detail::lexical_cast(value, t) && t >= 0) {
      options_.defaults.sampling.temperature = t;
    } else {
      std::fputs(kHelp, name == "/help" ? stdout : stderr);
    }
  }

  // Whether the turn was answered; a failed turn is taken back.
  bool answer(const std::string& text, const std::atomic<bool>& stop) {
    add(ChatRole::kUser, text);
    ApiRequest api;
    api.conversation = conversation_;
    api.chat = options_.defaults.chat;
    Result<std::vector<TokenId>> prompt = session_.codec().encode(api);
    if (!prompt.ok()) return give_up(prompt.error());
    Request request;
    request.id = fmt::format("turn-{}", ++turns_);
    request.prompt = std::move(*prompt);
    request.sampling = options_.defaults.sampling;

    ChatStreamParser parser(
        {.format = session_.codec().chat().wording().format, .starts_in_reasoning = api.thinking()});
    std::vector<ChatEvent> events;
    const auto on_text = [&](std::string_view piece) {
      parser.push(piece, events);
      show(events);
    };
    const RequestResult result = generate(session_.engine(), std::move(request), on_text, stop);
    parser.finish(events);
    show(events);
    style("");
    std::fputc('\n', stdout);
    std::fflush(stdout);
    const bool cancelled = result.error_code == error_code_name(ErrorCode::kCancelled);
    if (!result.error_code.empty() && !cancelled) return give_up({ErrorCode::kInternal, result.error, ""});
    if (result.answers.empty()) return give_up({ErrorCode::kCancelled, "no answer", ""});
    remember(session_.codec().parse_answer(api, result.answers.front().text));
    return !cancelled;
  }

  bool give_up(const Error& error) {
    report(error);
    conversation_.messages.pop_back();
    return false;
  }

  void remember(ChatAnswer answer) {
    ChatMessage message;
    message.role = ChatRole::kAssistant;
    message.content.push_back({ContentPart::Kind::kText, std::move(answer.content)});
    message.reasoning = std::move(answer.reasoning);
    message.tool_calls = std::move(answer.calls);
    conversation_.messages.push_back(std::move(message));
  }

  void show(std::vector<ChatEvent>& events) {
    for (const ChatEvent& event : events) {
      switch (event.kind) {
        case ChatEvent::Kind::kReasoning:
          style("\033[2m");
          in_reasoning_ = true;
          break;
        case ChatEvent::Kind::kContent:
          if (in_reasoning_) std::fputc('\n', stdout);
          in_reasoning_ = false;
          style("");
          break;
        case ChatEvent::Kind::kCallBegin:
          std::printf("\n[call %s ", event.text.c_str());
          continue;
        case ChatEvent::Kind::kCallEnd:
          std::fputs("]", stdout);
          continue;
        case ChatEvent::Kind::kError:
          std::printf("\n[%s]", event.text.c_str());
          continue;
        case ChatEvent::Kind::kArguments:
          break;
      }
      std::fwrite(event.text.data(), 1, event.text.size(), stdout);
    }
    std::fflush(stdout);
    events.clear();
  }

  // Reasoning is dimmed on terminals.
  void style(const char* wanted) {
    if (!terminal_ || style_ == wanted) return;
    std::fputs(*wanted == '\0' ? "\033[0m" : wanted, stdout);
    style_ = wanted;
  }

  Session& session_;
  ChatCommandOptions& options_;
  bool terminal_;
  Conversation conversation_;
  std::string style_;
  bool in_reasoning_ = false;
  int turns_ = 0;
};

int run(ChatCommandOptions& options) {
  const std::atomic<bool>& stop = catch_stop_signals();
  Result<std::unique_ptr<Session>> session = Session::open(options.session);
  if (!session.ok()) return report(session.error());
  return Chat(**session, options).run(stop);
}

}  // namespace

void register_chat(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ChatCommandOptions>();
  CLI::App* command = app.add_subcommand("chat", "Talk with a model; from a pipe, every line is a turn");
  command->add_option("--system", options->system, "System text")->type_name("TEXT");
  add_model_options(*command, options->session);
  add_sampling_options(*command, options->defaults);
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace deepinfer::cli
