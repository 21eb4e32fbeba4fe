// Any bytes as a line of a batch: it becomes a request or an error with a message, whatever stands in it, and
// what strict mode accepts means the same in lenient mode, without warnings.
#include <cstdint>
#include <string_view>

#include "api/openai_request.h"
#include "base/check.h"
#include "batch/batch_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace deepinfer;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const BatchLine lenient_line = parse_batch_line(text, false);
  const BatchLine line = parse_batch_line(text, true);
  DI_CHECK(line.id == lenient_line.id);
  if (!line.request.ok()) {
    DI_CHECK(!line.request.error().message.empty());
    return 0;
  }
  const BatchRequest& body = line.request.value();
  const auto strict = parse_openai_request(body.endpoint, body.body, {}, {.strict = true});
  const auto lenient = parse_openai_request(body.endpoint, body.body, {}, {.strict = false});
  if (!strict.ok()) {
    DI_CHECK(!strict.error().message.empty());
    return 0;
  }
  DI_CHECK(lenient.ok() && lenient.value().warnings.empty());
  const SamplingParams& s = strict.value().sampling;
  DI_CHECK(s.temperature >= 0 && s.top_p > 0 && s.top_p <= 1 && s.min_p >= 0 && s.min_p < 1 && s.n >= 1);
  DI_CHECK(s.max_tokens == -1 || s.max_tokens >= s.min_tokens);
  DI_CHECK(body.endpoint != Endpoint::kChat || !strict.value().conversation.messages.empty());
  return 0;
}
