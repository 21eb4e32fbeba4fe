// Golden files and small helpers to run a model over token lists in tests.
#pragma once

#include <string>
#include <vector>

#include "io/safetensors.h"
#include "model/decoder.h"

namespace deepinfer::testing {

/// Values of one tensor of a golden file, converted.
class Golden {
 public:
  explicit Golden(const std::string& path);
  std::vector<float> floats(const std::string& name) const;
  /// Any integer tensor.
  std::vector<std::int64_t> ints(const std::string& name) const;
  Shape shape(const std::string& name) const;
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }

 private:
  const TensorView& tensor(const std::string& name) const;
  SafetensorsFile file_;
};

/// A sequence run on a model directly, without the engine: one slot, consecutive blocks.
class Runner {
 public:
  Runner(Model& model, SlotId slot, BlockId first_block, std::int64_t max_tokens);
  /// Appends tokens in chunks of at most `chunk` rows; returns the logits [tokens, vocab] of all of them.
  std::vector<float> append(const std::vector<TokenId>& tokens, std::int64_t chunk);
  /// Forgets the newest rows.
  void roll_back(std::int64_t rows) { ids_.resize(ids_.size() - static_cast<std::size_t>(rows)); }
  /// The chunk that would run `tokens` next; valid until the next call.
  Chunk next_chunk(const std::vector<TokenId>& tokens, std::int64_t logits_from) const;
  void commit(const std::vector<TokenId>& tokens) { ids_.insert(ids_.end(), tokens.begin(), tokens.end()); }
  std::int64_t length() const { return static_cast<std::int64_t>(ids_.size()); }

 private:
  Model& model_;
  SlotId slot_;
  std::vector<BlockId> blocks_;
  std::vector<TokenId> ids_;
};

/// Opens models/<name> or stops the test program.
std::unique_ptr<Decoder> open_or_die(const std::string& folder, const ModelOptions& options);

std::vector<TokenId> to_tokens(const std::vector<std::int64_t>& ids);

}  // namespace deepinfer::testing
