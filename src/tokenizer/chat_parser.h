// The model's answer -> reasoning, content and tool calls, as it comes.
//
// Guarantees, for any input bytes and any way of cutting them into pieces:
//   - joined per kind, the events of all pushes and finish() are the same for every way of cutting;
//   - content and arguments never contain the call marker or a part of one that is being written;
//   - the arguments of every call that began are, joined, one complete JSON object;
//   - all texts are well-formed UTF-8 (ill-formed parts become U+FFFD).
// Markup that does not follow the format is never shown: one kError event says what was wrong, an open call
// is closed with complete = false, and the rest of the answer is dropped. Reasoning is passed on as it is up
// to `</think>`; markup in it means nothing. Markers are recognised in
// the text, so text that spells one with other tokens counts as well. Give it text decoded without
// skip_special, or push_token(). One thread uses one parser; copying one copies its state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/types.h"
#include "tokenizer/dsml.h"
#include "tokenizer/utf8.h"

namespace deepinfer {

class Tokenizer;

struct ChatEvent {
  enum class Kind {
    kReasoning,  ///< text: more of the reasoning
    kContent,    ///< text: more of the answer
    kCallBegin,  ///< text: the function's name; `call` counts from 0
    kArguments,  ///< text: more of the JSON text of call `call`'s arguments
    kCallEnd,    ///< call `call` is over; `complete` tells whether its markup was
    kError,      ///< text: one sentence; at most once, nothing follows
  };
  Kind kind = Kind::kContent;
  int call = -1;
  std::string text = {};
  bool complete = true;
};

struct ChatParserOptions {
  ChatFormat format = ChatFormat::kV41;
  bool starts_in_reasoning = false;  ///< ChatPrompt::starts_in_reasoning
};

class ChatStreamParser {
 public:
  explicit ChatStreamParser(const ChatParserOptions& options = {});

  /// Takes the next bytes of the answer and appends what is certain by now. Amortised linear in all bytes.
  void push(std::string_view bytes, std::vector<ChatEvent>& out);
  /// The next token of the answer. Control tokens that have no place in an answer (turn markers, padding, end
  /// of sequence; all but `<think>`, `</think>` and the call marker) give nothing.
  void push_token(const Tokenizer& tokenizer, TokenId id, std::vector<ChatEvent>& out);
  /// The answer is over. Call it once, last.
  void finish(std::vector<ChatEvent>& out);

  bool in_reasoning() const { return state_ == State::kReasoning; }
  int call_count() const { return call_count_; }

 private:
  enum class State {
    kReasoning,      // up to </think>
    kContent,        // up to the marker
    kBlockStart,     // at the first tag of a call block
    kInCalls,        // between calls
    kInvokeName,     // behind open_invoke
    kInInvoke,       // between parameters
    kParameterHead,  // behind open_parameter
    kTextValue,      // string="true"
    kJsonValue,      // string="false"
    kAfterCalls,     // behind the block
    kFailed,
  };
  enum class Found { kYes, kNotYet, kNo };

  std::string_view rest() const { return std::string_view(buffer_).substr(at_); }
  void consume(std::size_t size);
  bool step(std::vector<ChatEvent>& out);
  bool step_reasoning(std::vector<ChatEvent>& out);
  bool step_content(std::vector<ChatEvent>& out);
  bool step_block_start(std::vector<ChatEvent>& out);
  bool step_in_calls(std::vector<ChatEvent>& out);
  bool step_invoke_name(std::vector<ChatEvent>& out);
  bool step_in_invoke(std::vector<ChatEvent>& out);
  bool step_parameter_head(std::vector<ChatEvent>& out);
  bool step_text_value(std::vector<ChatEvent>& out);
  bool step_json_value(std::vector<ChatEvent>& out);
  bool step_after_calls(std::vector<ChatEvent>& out);

  Found take(std::string_view tag);
  void skip_white_space();
  void emit(ChatEvent::Kind kind, std::string_view text, std::vector<ChatEvent>& out);
  void begin_argument(std::vector<ChatEvent>& out);
  void end_call(bool complete, std::vector<ChatEvent>& out);
  void fail(std::string message, std::vector<ChatEvent>& out);

  ChatFormat format_;
  State state_;
  utf8::Stream utf8_;
  std::string buffer_;  // well-formed text; [0, at_) is done
  std::size_t at_ = 0;
  std::size_t searched_ = 0;  // of rest(): this much holds no marker
  int call_count_ = 0;
  int block_calls_ = 0;                  // calls of the present block
  std::string parameter_;                // name of the open parameter
  std::vector<std::string> parameters_;  // names of the open call's parameters so far
  bool call_open_ = false, text_open_ = false, object_open_ = false;
};

/// A whole answer.
struct ParsedAnswer {
  struct Call {
    std::string name, arguments;
    bool complete = false;
    bool operator==(const Call&) const = default;
  };
  std::string reasoning, content;
  std::vector<Call> calls;
  std::string error;  ///< of the kError event, or empty

  void add(const ChatEvent& event);
  bool operator==(const ParsedAnswer&) const = default;
};

/// One push and a finish.
ParsedAnswer parse_answer(std::string_view bytes, const ChatParserOptions& options = {});

}  // namespace deepinfer
