// The registry of families: from a model folder to a running network. A new family is one folder beside
// deepseek_v41/ and one case in open_model.cc (docs/adding-a-model.md).
#pragma once

#include <memory>
#include <string>

#include "model/decoder.h"

namespace deepinfer {

/// Opens `folder`: configuration, checkpoint, tensor list, token map, cache, weights. Errors: everything that
/// is wrong with the folder, before any large allocation.
Result<std::unique_ptr<Decoder>> open_model(const std::string& folder, const ModelOptions& options = {});

}  // namespace deepinfer
