// Any text as a config.json: an error, or a configuration whose tensor list and sizes can be computed.
#include <cstdint>
#include <string_view>

#include "io/json.h"
#include "model/config.h"
#include "model/tensor_list.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = deepinfer::parse_json(text, {.max_bytes = 1 << 20, .max_depth = 32});
  if (json.ok()) {
    const auto again = deepinfer::parse_json(deepinfer::to_json_text(*json));
    DI_CHECK(again.ok() && *again == *json, "written JSON reads back differently");
  }
  const auto config = deepinfer::parse_config(text);
  if (!config.ok()) {
    DI_CHECK(!config.error().message.empty());
    return 0;
  }
  DI_CHECK(static_cast<std::int64_t>(config->plan.size()) == config->layers);
  // Large networks have hundreds of thousands of tensors: list the small ones only, to keep the fuzzer fast.
  if (config->layers * config->experts > 4096 || config->draft.stages * config->draft.experts > 4096)
    return 0;
  std::int64_t parameters = 0;
  for (const auto& tensor : deepinfer::expected_tensors(*config)) {
    DI_CHECK(tensor.parameters() >= 0 && tensor.bytes() > 0, tensor.name);
    parameters += tensor.parameters();
    DI_CHECK(parameters >= 0, "the sum of all parameters overflows");
  }
  return 0;
}
