// Options that several subcommands share.
#pragma once

#include "api/openai_request.h"
#include "api/session.h"

namespace CLI {
class App;
}

namespace deepinfer::cli {

/// --model, --max-context, --cache-tokens, --sequences, --rows, --threads, --numerics, --seed. `options` must
/// outlive the parse.
void add_model_options(CLI::App& command, SessionOptions& options);
/// --temperature, --top-p, … --max-tokens, --thinking, --effort: what applies where a request says nothing.
void add_sampling_options(CLI::App& command, RequestDefaults& defaults);

}  // namespace deepinfer::cli
