// One request with its text as it comes, for commands that talk to a person.
#pragma once

#include <atomic>
#include <functional>
#include <string_view>

#include "deepinfer/engine.h"

namespace deepinfer::cli {

/// Submits and waits. `on_text` gets the first answer's text piece by piece on the calling thread. When
/// `stop` becomes true the request is cancelled; the result then holds what there was, with error_code
/// "cancelled".
RequestResult generate(EngineInterface& engine, Request request,
                       const std::function<void(std::string_view)>& on_text, const std::atomic<bool>& stop);

}  // namespace deepinfer::cli
