// OUT.manifest.json: what a run is, so that a resume continues the same run and not a similar one.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "io/json.h"

namespace deepinfer {

/// "OUT.manifest.json".
std::string manifest_path(const std::string& output);

/// What identifies an input: {"bytes", "head_tail_hash"} of a regular file, "stream" otherwise.
Result<Json> describe_input(const std::string& input);

/// The first difference between two manifests as 'field "/model/hash": the run has …, now …', or "" when they
/// agree. `/created` may differ.
std::string manifest_difference(const Json& recorded, const Json& present);

/// Nothing when the file does not exist.
Result<std::optional<Json>> read_manifest(const std::string& output);
/// Replaces the file in one step and makes it durable.
Status write_manifest(const std::string& output, const Json& manifest);

}  // namespace deepinfer
