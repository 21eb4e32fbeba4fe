#include "engine/harness.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "engine/request_check.h"

namespace deepinfer {

const Tokenizer& small_tokenizer() {
  static const Tokenizer tokenizer = [] {
    std::ifstream file("models/demo-v41/tokenizer.json");
    nlohmann::json spec = nlohmann::json::parse(file);
    const Tokenizer demo = Tokenizer::load("models/demo-v41/tokenizer.json").value();
    nlohmann::json vocab = nlohmann::json::object();
    for (const auto& [text, id] : spec["model"]["vocab"].items()) {
      const std::string_view bytes = demo.token_bytes(id.get<TokenId>());
      if (bytes.size() == 1) vocab[text] = 4 + static_cast<int>(static_cast<unsigned char>(bytes[0]));
    }
    vocab["he"] = 260;
    vocab["the"] = 261;
    spec["model"]["vocab"] = vocab;
    const auto pair = [](const char* a, const char* b) { return nlohmann::json::array({a, b}); };
    spec["model"]["merges"] = nlohmann::json::array({pair("h", "e"), pair("t", "he")});
    spec["added_tokens"] = nlohmann::json::array();
    int next = 0;
    for (const char* name : {"<bos>", "<eos>", "<think>", "</think>"}) {
      spec["added_tokens"].push_back(
          {{"id", next++}, {"content", name}, {"special", true}, {"normalized", false}});
    }
    return Tokenizer::parse(spec.dump()).value();
  }();
  return tokenizer;
}

std::vector<TokenId> byte_tokens(const std::string& text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(4 + static_cast<unsigned char>(c));
  return ids;
}

RequestHandle submit(EngineInterface& engine, Request request, std::shared_ptr<Collected> into, bool stream) {
  Sink sink;
  if (stream) sink.on_delta = [into](Delta&& delta) { into->deltas.push_back(std::move(delta)); };
  sink.on_done = [into](RequestResult&& result) { into->results.push_back(std::move(result)); };
  return engine.submit(std::move(request), std::move(sink));
}

RequestResult run_one(EngineInterface& engine, Request request) {
  auto into = std::make_shared<Collected>();
  submit(engine, std::move(request), into);
  engine.drain();
  return into->only();
}

std::vector<Answer> expected_answers(const FakeModel& model, const Tokenizer* tokenizer,
                                     const Request& request, std::uint64_t engine_seed,
                                     std::int64_t max_context, const CompiledConstraint* grammar) {
  Vocabulary vocabulary;
  vocabulary.tokenizer = tokenizer;
  vocabulary.size = model.vocab_size();
  vocabulary.end_ids = {model.config().eos};
  if (tokenizer != nullptr) {
    vocabulary.think_begin = tokenizer->find_token("<think>");
    vocabulary.think_end = tokenizer->find_token("</think>");
  }
  const StopStrings stops(request.sampling.stop);
  const std::uint64_t seed =
      request.sampling.seed ? *request.sampling.seed : derived_seed(engine_seed, request.id);
  std::vector<Answer> answers;
  Sampler sampler;
  for (std::int32_t i = 0; i < request.sampling.n; ++i) {
    const std::int64_t max_new = max_new_tokens(request, max_context);
    AnswerState state(request, stops, vocabulary, request.prompt, i, answer_seed(seed, i), max_new,
                      grammar != nullptr ? grammar->start() : nullptr);
    bool ended = max_new == 0;
    if (ended) state.finish(FinishReason::kLength);
    while (!ended) {
      std::vector<float> row = model.oracle(state.tokens());
      DrawInputs inputs;
      DI_CHECK(state.prepare_draw(inputs).ok());
      ended = state.append(sampler.draw(row, inputs).value()).value();
    }
    answers.push_back(state.take_answer());
  }
  return answers;
}

namespace {

constexpr std::int64_t kLeast = 3, kMost = 6;

class FakeConstraint final : public TokenConstraint {
 public:
  FakeConstraint(std::int64_t vocab, std::string kind) : vocab_(vocab), kind_(std::move(kind)) {}
  Status mask(std::span<std::uint32_t> bits) override {
    if (kind_ == "dead" && state_ == 2) return Error{ErrorCode::kInternal, "dead end", "grammar"};
    for (std::int64_t t = 0; t < vocab_; ++t) {
      const bool allowed = state_ < kMost && (t + state_) % 3 == 0 && t > 3;
      std::uint32_t& word = bits[static_cast<std::size_t>(t / 32)];
      word = (word & ~(1u << (t % 32))) | (allowed ? 1u << (t % 32) : 0u);
    }
    return {};
  }
  Status accept(TokenId token) override {
    if (state_ >= kMost || (token + state_) % 3 != 0) return invalid_argument("token not allowed");
    ++state_;
    return {};
  }
  bool can_end() override { return state_ >= kLeast; }
  bool no_progress() override { return kind_ == "blank" && state_ == 4; }
  Status rollback(std::int64_t count) override {
    if (count > state_) return invalid_argument("too far back");
    state_ -= count;
    return {};
  }

 private:
  std::int64_t vocab_;
  std::string kind_;
  std::int64_t state_ = 0;
};

class FakeCompiled final : public CompiledConstraint {
 public:
  FakeCompiled(std::int64_t vocab, std::string kind) : vocab_(vocab), kind_(std::move(kind)) {}
  std::unique_ptr<TokenConstraint> start() const override {
    return std::make_unique<FakeConstraint>(vocab_, kind_);
  }

 private:
  std::int64_t vocab_;
  std::string kind_;
};

}  // namespace

Result<std::shared_ptr<const CompiledConstraint>> FakeCompiler::compile(const StructuredOutput& what,
                                                                        std::vector<std::string>& warnings) {
  if (what.text == "bad") return invalid_argument("unknown keyword", "structured.schema");
  if (what.text == "throw") throw std::runtime_error("boom");
  if (what.text == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (what.best_effort) warnings.push_back("loosened");
  return std::shared_ptr<const CompiledConstraint>(std::make_shared<FakeCompiled>(vocab_, what.text));
}

bool fake_grammar_accepts(std::span<const TokenId> tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if ((tokens[i] + static_cast<TokenId>(i)) % 3 != 0 || tokens[i] <= 3) return false;
  }
  return static_cast<std::int64_t>(tokens.size()) >= kLeast &&
         static_cast<std::int64_t>(tokens.size()) <= kMost;
}

std::string difference(const Answer& a, const Answer& b) {
  if (a.index != b.index) return fmt::format("index {} and {}", a.index, b.index);
  for (std::size_t i = 0; i < std::min(a.tokens.size(), b.tokens.size()); ++i) {
    if (a.tokens[i] != b.tokens[i]) return fmt::format("token {}: {} and {}", i, a.tokens[i], b.tokens[i]);
  }
  if (a.tokens.size() != b.tokens.size())
    return fmt::format("{} and {} tokens", a.tokens.size(), b.tokens.size());
  if (a.text != b.text) return fmt::format("text '{}' and '{}'", a.text, b.text);
  if (a.finish != b.finish || a.stop_text != b.stop_text) return "the way it ended";
  if (a.logprobs.size() != b.logprobs.size()) return "number of log-probabilities";
  for (std::size_t i = 0; i < a.logprobs.size(); ++i) {
    const TokenLogprob &x = a.logprobs[i], &y = b.logprobs[i];
    if (x.token != y.token || x.logprob != y.logprob || x.top != y.top)
      return fmt::format("log-probability {}", i);
  }
  return "";
}

}  // namespace deepinfer
