// The engine's version as results, manifests and `deepinfer version` state it.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

/// "0.1.0".
std::string_view version();

/// "deepinfer-0.1.0": the `system_fingerprint` of results and the `engine` field of manifests.
std::string version_fingerprint();

/// Compiler, optimised or not, and target architecture, for `version` and `doctor`.
std::string build_description();

}  // namespace deepinfer
