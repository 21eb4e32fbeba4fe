// The answer parser: every cut of every answer gives the same result, markers never leak, arguments are
// always closed.
#include "tokenizer/chat_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "io/json.h"
#include "tokenizer/chat_encoder.h"
#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {

const std::string kCalls =
    "Let me look.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n"
    "<｜DSML｜ parameter name=\"city\" string=\"true\">Köln \"a\\b\"\n<b>\t</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"days\" string=\"false\"> [1, {\"x\": null}] </｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"ns::now\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";

const std::string& v4_calls() {
  static const std::string text = [] {
    std::string s = kCalls;
    for (std::size_t at; (at = s.find("｜DSML｜ calls")) != std::string::npos;)
      s.replace(at, std::string("｜DSML｜ calls").size(), "｜DSML｜tool_calls");
    for (std::size_t at; (at = s.find("｜DSML｜ ")) != std::string::npos;)
      s.erase(at + std::string("｜DSML｜").size(), 1);
    return s;
  }();
  return text;
}

ParsedAnswer parse_pieces(const std::vector<std::string_view>& pieces, const ChatParserOptions& options) {
  ChatStreamParser parser(options);
  ParsedAnswer out;
  std::vector<ChatEvent> events;
  for (std::string_view piece : pieces) {
    events.clear();
    parser.push(piece, events);
    for (const ChatEvent& e : events) out.add(e);
    EXPECT_EQ(out.content.find(kDsml), std::string::npos);
  }
  events.clear();
  parser.finish(events);
  for (const ChatEvent& e : events) out.add(e);
  return out;
}

// What must hold whatever the model wrote.
void expect_sound(const ParsedAnswer& answer, const std::string& input) {
  EXPECT_EQ(answer.content.find(kDsml), std::string::npos) << input;
  EXPECT_TRUE(utf8::is_valid(answer.content) && utf8::is_valid(answer.reasoning)) << input;
  for (const auto& call : answer.calls) {
    EXPECT_EQ(call.arguments.find(kDsml), std::string::npos) << input;
    const auto arguments = parse_json(call.arguments);
    EXPECT_TRUE(arguments.ok() && arguments->is_object()) << input << "\n-> " << call.arguments;
    EXPECT_TRUE(is_dsml_name(call.name)) << input;
    if (!call.complete) {
      EXPECT_NE(answer.error, "") << input;
    }
  }
}

TEST(ChatParser, ReadsReasoningContentAndCalls) {
  const ParsedAnswer a = parse_answer("First, think.\n</think>" + kCalls, {.starts_in_reasoning = true});
  EXPECT_EQ(a.reasoning, "First, think.\n");
  EXPECT_EQ(a.content, "Let me look.");
  ASSERT_EQ(a.calls.size(), 2u);
  EXPECT_EQ(a.calls[0].name, "get_weather");
  EXPECT_EQ(a.calls[0].arguments,
            "{\"city\": \"Köln \\\"a\\\\b\\\"\\n<b>\\t\", \"days\": [1, {\"x\": null}]}");
  EXPECT_EQ(a.calls[1].name, "ns::now");
  EXPECT_EQ(a.calls[1].arguments, "{}");
  EXPECT_TRUE(a.calls[0].complete && a.calls[1].complete);
  EXPECT_EQ(a.error, "");
  EXPECT_EQ(parse_answer(v4_calls(), {.format = ChatFormat::kV4}).calls, parse_answer(kCalls).calls);
}

TEST(ChatParser, Case16EverySplitAtEveryByteGivesTheSameEvents) {
  const std::vector<std::pair<std::string, ChatParserOptions>> cases = {
      {"thought</think>" + kCalls, {.starts_in_reasoning = true}},
      {kCalls, {}},
      {v4_calls(), {.format = ChatFormat::kV4}},
      {kCalls, {.format = ChatFormat::kV4}},
      {"a < b </ c \n\n< \n\n\n<｜ ｜D ｜DSML", {}},
      {kCalls + "\nand more", {}},
      {"</think></think>\n\n", {.starts_in_reasoning = true}},
  };
  for (const auto& [text, options] : cases) {
    const std::string_view view = text;
    const ParsedAnswer whole = parse_answer(text, options);
    expect_sound(whole, text);
    for (std::size_t i = 0; i <= text.size(); ++i) {
      ASSERT_EQ(parse_pieces({view.substr(0, i), view.substr(i)}, options), whole) << i;
    }
    std::vector<std::string_view> bytes;
    for (std::size_t i = 0; i < text.size(); ++i) bytes.push_back(view.substr(i, 1));
    ASSERT_EQ(parse_pieces(bytes, options), whole);
    // Truncated anywhere, it is still sound.
    for (std::size_t i = 0; i <= text.size(); ++i)
      expect_sound(parse_answer(view.substr(0, i), options), text.substr(0, i));
  }
}

TEST(ChatParser, Case16DamagedMarkupNeverLeaksAndArgumentsAreClosed) {
  constexpr std::uint64_t kSeed = 1616;
  std::mt19937_64 rng(kSeed);
  const std::vector<std::string> pieces = {"<｜DSML｜ calls>",
                                           "</｜DSML｜ calls>",
                                           "<｜DSML｜ invoke name=\"f\">",
                                           "</｜DSML｜ invoke>",
                                           "｜DSML｜",
                                           "<",
                                           "</",
                                           "｜",
                                           "<｜DSML｜ parameter name=\"a\" string=\"true\">",
                                           "<｜DSML｜ parameter name=\"b\" string=\"false\">",
                                           "</｜DSML｜ parameter>",
                                           "\n\n",
                                           "\n",
                                           " ",
                                           "x",
                                           "\"",
                                           "\\",
                                           "{\"k\":",
                                           "1",
                                           "</think>",
                                           "\xFF",
                                           "<｜DSML｜tool_calls>"};
  int with_calls = 0, with_errors = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    if (rng() % 2 == 0) {
      text = kCalls;
      for (std::size_t n = rng() % 4; n > 0; --n) {
        const std::size_t at = rng() % text.size();
        switch (rng() % 4) {
          case 0:
            text[at] = static_cast<char>(rng());
            break;
          case 1:
            text.erase(at, 1 + rng() % 20);
            break;
          case 2:
            text.insert(at, pieces[rng() % pieces.size()]);
            break;
          default:
            text.insert(at, text.substr(rng() % text.size(), rng() % 60));
        }
        if (text.empty()) text = "x";
      }
    } else {
      for (std::size_t n = rng() % 25; n > 0; --n) text += pieces[rng() % pieces.size()];
    }
    const ChatParserOptions options{.starts_in_reasoning = rng() % 4 == 0};
    const ParsedAnswer whole = parse_answer(text, options);
    expect_sound(whole, text);
    with_calls += whole.calls.empty() ? 0 : 1;
    with_errors += whole.error.empty() ? 0 : 1;
    std::vector<std::string_view> cut;
    for (std::string_view rest = text; !rest.empty();) {
      const std::size_t size = std::min<std::size_t>(rest.size(), 1 + rng() % 9);
      cut.push_back(rest.substr(0, size));
      rest.remove_prefix(size);
    }
    ASSERT_EQ(parse_pieces(cut, options), whole) << "seed " << kSeed << " round " << round << ": " << text;
    ASSERT_FALSE(HasFailure()) << "seed " << kSeed << " round " << round;
  }
  EXPECT_GT(with_calls, 2000);
  EXPECT_GT(with_errors, 2000);
}

TEST(ChatParser, TextIsHeldBackOnlyAsLongAsItMayBeAMarker) {
  ChatStreamParser parser;
  std::vector<ChatEvent> out;
  const auto pushed = [&](std::string_view text) {
    out.clear();
    parser.push(text, out);
    std::string shown;
    for (const ChatEvent& e : out) shown += e.text;
    return shown;
  };
  EXPECT_EQ(pushed("hello"), "hello");
  EXPECT_EQ(pushed("\n\n"), "");
  EXPECT_EQ(pushed("<"), "");
  EXPECT_EQ(pushed("b"), "\n\n<b");
  EXPECT_EQ(pushed("\n\n<｜"), "");
  EXPECT_EQ(pushed("DSML"), "");
  EXPECT_EQ(pushed("｜ calls>\n<｜DSML｜ invoke name=\"f"), "");
  EXPECT_EQ(pushed("\">\n<｜DSML｜ parameter name=\"p\" string=\"true\">abc"), "f{\"p\": \"abc");
  EXPECT_EQ(pushed("def<"), "def");
  EXPECT_EQ(pushed("/｜DSML｜ parameter>"), "\"");
  EXPECT_EQ(pushed("</｜DSML｜ invoke>"), "}");
  EXPECT_EQ(pushed("</｜DSML｜ calls>"), "");
  out.clear();
  parser.finish(out);
  EXPECT_TRUE(out.empty());
}

TEST(ChatParser, EachKindOfDamageIsNamed) {
  const auto error = [](const std::string& text) { return parse_answer(text).error; };
  const std::string open = "\n\n<｜DSML｜ calls>\n", invoke = "<｜DSML｜ invoke name=\"f\">\n",
                    p = "<｜DSML｜ parameter name=\"a\" string=\"true\">v</｜DSML｜ parameter>\n",
                    end = "</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  EXPECT_EQ(error(open + invoke + p + end), "");
  EXPECT_EQ(error(open + invoke + p + p + end), "a tool call gives one argument twice");
  EXPECT_EQ(error(open + "</｜DSML｜ calls>"), "a tool-call block holds no call");
  EXPECT_EQ(error("x ｜DSML｜ y"), "a tool-call marker stands where no call begins");
  EXPECT_EQ(error(v4_calls()), "the tool calls are spelled as in the chat format v4");
  EXPECT_EQ(error(open + invoke), "the answer ends inside a tool call");
  EXPECT_EQ(error("text<｜DSML"), "the answer ends inside a tool-call marker");
  EXPECT_EQ(error(open + "text"),
            "a tool call is not well formed: a call or the end of the block was expected");
  EXPECT_EQ(error(open + invoke + "text"),
            "a tool call is not well formed: an argument or the end of the call was expected");
  EXPECT_EQ(error(open + "<｜DSML｜ invoke name=\"a\"b\">"),
            "a tool call is not well formed: the function's name cannot be read");
  EXPECT_EQ(error(open + "<｜DSML｜ invoke name=\"" + std::string(1000, 'n')),
            "a tool call is not well formed: the function's name cannot be read");
  EXPECT_EQ(error(open + invoke + "<｜DSML｜ parameter name=\"a\" string=\"maybe\">"),
            "a tool call is not well formed: an argument's head cannot be read");
  EXPECT_EQ(error(open + invoke + p.substr(0, p.find('v')) + "<｜DSML｜ x"),
            "a tool call is not well formed: a marker stands inside an argument");
  EXPECT_EQ(error(open + invoke + p + end + " more"), "there is text behind the tool calls");
  const ParsedAnswer cut = parse_answer("hi" + open + invoke + p.substr(0, p.find('v') + 1));
  EXPECT_EQ(cut.content, "hi");
  ASSERT_EQ(cut.calls.size(), 1u);
  EXPECT_EQ(cut.calls[0].arguments, "{\"a\": \"v\"}");
  EXPECT_FALSE(cut.calls[0].complete);
}

TEST(ChatParser, AValueAnnouncedAsJsonThatIsNoneComesAsText) {
  const std::string
      head =
          "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"false\">",
      tail = "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  EXPECT_EQ(parse_answer(head + "True" + tail).calls.at(0).arguments, "{\"a\": \"True\"}");
  EXPECT_EQ(parse_answer(head + "" + tail).calls.at(0).arguments, "{\"a\": \"\"}");
  EXPECT_EQ(parse_answer(head + "{\"a\": 1} {" + tail).calls.at(0).arguments,
            "{\"a\": \"{\\\"a\\\": 1} {\"}");
  EXPECT_EQ(parse_answer(head + " -1.5e3\n" + tail).calls.at(0).arguments, "{\"a\": -1.5e3}");
}

TEST(ChatParser, ReasoningWithoutAnEndIsAllReasoning) {
  const ParsedAnswer a =
      parse_answer("still thinking <｜DSML｜ calls> </thin", {.starts_in_reasoning = true});
  EXPECT_EQ(a.reasoning, "still thinking <｜DSML｜ calls> </thin");
  EXPECT_EQ(a.content, "");
  EXPECT_EQ(a.error, "");
}

TEST(ChatParser, ReadsBackWhatTheEncoderWrites) {
  const Tokenizer tokenizer = Tokenizer::load("models/demo-v41/tokenizer.json").value();
  for (const ChatFormat format : {ChatFormat::kV41, ChatFormat::kV4}) {
    const ChatEncoder encoder = ChatEncoder::create(tokenizer, ChatWording::built_in(format)).value();
    Conversation chat;
    chat.messages.push_back({.role = ChatRole::kUser,
                             .content = {{ContentPart::Kind::kText, "q"}},
                             .reasoning = {},
                             .tool_calls = {},
                             .tool_call_id = {},
                             .tools = {}});
    ChatMessage answer;
    answer.role = ChatRole::kAssistant;
    answer.content = {{ContentPart::Kind::kText, "Two calls < 3.\n"}};
    answer.reasoning = "hm";
    answer.tool_calls = {{"1", "a::b", R"({"t": "x\n</y> \"", "n": [1, 2.5, {"k": null}]})"},
                         {"2", "c", "{}"}};
    chat.messages.push_back(answer);
    const ChatPrompt prompt =
        encoder.render(chat, {.thinking = true, .continue_final_message = true}).value();
    const std::string text = encoder.to_text(prompt);
    const std::string tail = text.substr(text.find("<think>") + std::string("<think>").size());
    const ParsedAnswer back = parse_answer(tail, {.format = format, .starts_in_reasoning = true});
    EXPECT_EQ(back.error, "");
    EXPECT_EQ(back.reasoning, "hm");
    EXPECT_EQ(back.content, "Two calls < 3.\n");
    ASSERT_EQ(back.calls.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(back.calls[i].name, answer.tool_calls[i].name);
      EXPECT_EQ(parse_json(back.calls[i].arguments).value(),
                parse_json(answer.tool_calls[i].arguments).value());
    }
  }
}

TEST(ChatParser, TokensGiveWhatTheirTextGivesAndStrayControlTokensGiveNothing) {
  const Tokenizer tokenizer = Tokenizer::load("models/demo-v41/tokenizer.json").value();
  const std::string text = "hm 好</think>" + kCalls;
  std::vector<ChatEvent> events;
  ChatStreamParser parser({.starts_in_reasoning = true});
  for (const TokenId id : tokenizer.encode(text, {.parse_special = true})) {
    parser.push_token(tokenizer, id, events);
    parser.push_token(tokenizer, 4, events);  // <｜User｜>
  }
  parser.push_token(tokenizer, 1, events);
  parser.push_token(tokenizer, -1, events);
  parser.finish(events);
  ParsedAnswer answer;
  for (const ChatEvent& e : events) answer.add(e);
  EXPECT_EQ(answer, parse_answer(text, {.starts_in_reasoning = true}));
  EXPECT_EQ(answer.calls.size(), 2u);
}

TEST(ChatParser, LongAnswersCostLinearTime) {
  // A quadratic parser would take minutes here.
  const std::string head =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"false\">\"";
  const std::string text =
      head + std::string(2000000, 'x') + "\"</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  std::vector<std::string_view> pieces;
  for (std::size_t i = 0; i < text.size(); i += 4) pieces.push_back(std::string_view(text).substr(i, 4));
  ChatStreamParser parser;
  std::vector<ChatEvent> events;
  for (std::string_view piece : pieces) parser.push(piece, events);
  parser.finish(events);
  ParsedAnswer answer;
  for (const ChatEvent& e : events) answer.add(e);
  EXPECT_EQ(answer.calls.at(0).arguments.size(), 2000000 + std::string("{\"a\": \"\"}").size());
  EXPECT_TRUE(answer.calls[0].complete);
}

}  // namespace
}  // namespace deepinfer
