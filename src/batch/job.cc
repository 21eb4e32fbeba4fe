#include "batch/job.h"

#include "api/openai_response.h"
#include "batch/id_table.h"
#include "io/json.h"

namespace deepinfer {

std::string result_line(const Job& job, const PromptCodec& codec, const ResultEnvelope& envelope) {
  const IdHash hash = hash_id(job.name());
  const std::string suffix = fmt::format("{:04x}{:016x}", hash.high, hash.low);
  Json line;
  line.set("id", "batch_req_" + suffix);
  line.set("custom_id", job.id || !job.error ? Json(job.name()) : Json());
  const bool failed = job.error || !job.result.error_code.empty();
  if (failed) {
    Json error = job.error ? openai_error(*job.error) : openai_error(job.result);
    error.set("line", job.line);
    line.set("response", Json());
    line.set("error", std::move(error));
    return to_json_text(line);
  }
  const bool chat = job.request->endpoint == Endpoint::kChat;
  const ResponseContext context{.id = (chat ? "chatcmpl-" : "cmpl-") + suffix,
                                .model = envelope.model,
                                .created = envelope.created,
                                .run_details = envelope.run_details};
  Json response;
  response.set("status_code", 200);
  response.set("request_id", "req_" + suffix);
  response.set("body", openai_response(*job.request, job.result, codec, context));
  line.set("response", std::move(response));
  line.set("error", Json());
  return to_json_text(line);
}

}  // namespace deepinfer
