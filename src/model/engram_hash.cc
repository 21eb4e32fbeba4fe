#include "model/engram_hash.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <set>

namespace deepinfer {
namespace {

__extension__ typedef unsigned __int128 Uint128;  // NOLINT: no standard 128-bit integer

// The multipliers were drawn from numpy's default generator: a SeedSequence feeding PCG64 (128-bit state,
// XSL-RR output), bounded by Lemire's method. Constants are those of the published algorithms.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(std::uint32_t seed) {
    const std::array<std::uint64_t, 4> words = seed_words(seed);
    const Uint128 start = (static_cast<Uint128>(words[0]) << 64) | words[1];
    const Uint128 sequence = (static_cast<Uint128>(words[2]) << 64) | words[3];
    increment_ = (sequence << 1) | 1;
    step();
    state_ += start;
    step();
  }

  /// Uniform in [0, bound), bound > 2^32.
  std::uint64_t below(std::uint64_t bound) {
    for (;;) {
      const Uint128 product = static_cast<Uint128>(next()) * bound;
      const auto low = static_cast<std::uint64_t>(product);
      if (low >= bound || low >= (0 - bound) % bound) return static_cast<std::uint64_t>(product >> 64);
    }
  }

 private:
  static std::array<std::uint64_t, 4> seed_words(std::uint32_t seed) {
    std::array<std::uint32_t, 4> pool{};
    std::uint32_t constant = 0x43b0d7e5u;
    const auto hash = [&constant](std::uint32_t value) {
      value ^= constant;
      constant *= 0x931e8875u;
      value *= constant;
      return value ^ (value >> 16);
    };
    for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = hash(i == 0 ? seed : 0);
    for (std::size_t from = 0; from < pool.size(); ++from) {
      for (std::size_t to = 0; to < pool.size(); ++to) {
        if (from == to) continue;
        const std::uint32_t mixed = 0xca01f9ddu * pool[to] - 0x4973f715u * hash(pool[from]);
        pool[to] = mixed ^ (mixed >> 16);
      }
    }
    std::array<std::uint64_t, 4> words{};
    std::uint32_t out_constant = 0x8b51f9ddu;
    for (std::size_t i = 0; i < 8; ++i) {
      std::uint32_t value = pool[i % 4] ^ out_constant;
      out_constant *= 0x58f38dedu;
      value *= out_constant;
      value ^= value >> 16;
      words[i / 2] |= static_cast<std::uint64_t>(value) << (32 * (i % 2));
    }
    return words;
  }

  void step() {
    const Uint128 multiplier = (static_cast<Uint128>(0x2360ed051fc65da4u) << 64) | 0x4385df649fccf645u;
    state_ = state_ * multiplier + increment_;
  }

  std::uint64_t next() {
    step();
    const auto folded = static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
    const auto rotation = static_cast<unsigned>(state_ >> 122);
    return (folded >> rotation) | (folded << ((64 - rotation) & 63));
  }

  Uint128 state_ = 0;
  Uint128 increment_ = 0;
};

bool is_prime(std::int64_t n) {
  if (n < 2) return false;
  for (std::int64_t d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return true;
}

}  // namespace

Result<EngramHash> EngramHash::create(const EngramConfig& config, std::vector<std::int32_t> token_map) {
  const std::string where = "engram";
  std::int64_t largest = -1;
  for (const std::int32_t id : token_map) {
    if (id < 0) return corrupt("the token map has a negative entry", where);
    largest = std::max<std::int64_t>(largest, id);
  }
  if (largest + 1 != config.compressed_vocab) {
    return corrupt(fmt::format("the tokenizer gives {} compressed ids, the configuration says {}",
                               largest + 1, config.compressed_vocab),
                   where);
  }
  if (config.pad_token < 0 || config.pad_token >= static_cast<std::int64_t>(token_map.size())) {
    return corrupt("the padding token is outside the vocabulary", where);
  }
  EngramHash h;
  h.max_ngram_ = config.max_ngram;
  h.heads_ = config.heads;
  h.pad_ = token_map[static_cast<std::size_t>(config.pad_token)];
  h.token_map_ = std::move(token_map);
  // Multipliers are odd and small enough that token * multiplier stays below 2^63.
  const std::uint64_t bound = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) /
                              static_cast<std::uint64_t>(config.compressed_vocab) / 2;
  if (bound <= std::numeric_limits<std::uint32_t>::max())
    return corrupt("the compressed vocabulary is too large", where);
  std::set<std::int64_t> used;
  for (std::size_t table = 0; table < config.layers.size(); ++table) {
    NumpyGenerator generator(static_cast<std::uint32_t>(10007 * config.layers[table]));
    std::vector<std::int64_t> multipliers, primes, offsets;
    for (std::int64_t i = 0; i < config.max_ngram; ++i) {
      multipliers.push_back(static_cast<std::int64_t>(generator.below(bound) * 2 + 1));
    }
    std::int64_t sum = 0;
    for (std::int64_t ngram = 2; ngram <= config.max_ngram; ++ngram) {
      std::int64_t candidate = config.vocab_start - 1;
      for (std::int64_t head = 0; head < config.heads; ++head) {
        do ++candidate;
        while (used.contains(candidate) || !is_prime(candidate));
        used.insert(candidate);
        primes.push_back(candidate);
        offsets.push_back(sum);
        sum += candidate;
      }
    }
    if (sum != config.table_rows[table]) {
      return corrupt(fmt::format("layer {}: the hash primes need {} rows, the configuration says {}",
                                 config.layers[table], sum, config.table_rows[table]),
                     where);
    }
    h.multipliers_.push_back(std::move(multipliers));
    h.primes_.push_back(std::move(primes));
    h.offsets_.push_back(std::move(offsets));
  }
  return h;
}

void EngramHash::rows(std::int64_t table, std::span<const TokenId> history, std::int64_t* out) const {
  const auto t = static_cast<std::size_t>(table);
  const auto size = static_cast<std::int64_t>(history.size());
  std::int64_t mixed = 0;
  bool dead = false;
  for (std::int64_t shift = 0; shift < max_ngram_; ++shift) {
    dead = dead || shift >= size || history[static_cast<std::size_t>(size - 1 - shift)] < 0;
    const std::int64_t token =
        dead ? pad_
             : token_map_[static_cast<std::size_t>(history[static_cast<std::size_t>(size - 1 - shift)])];
    mixed ^= token * multipliers_[t][static_cast<std::size_t>(shift)];
    if (shift == 0) continue;
    for (std::int64_t head = 0; head < heads_; ++head) {
      const auto i = static_cast<std::size_t>((shift - 1) * heads_ + head);
      out[i] = mixed % primes_[t][i] + offsets_[t][i];
    }
  }
}

std::span<const std::int64_t> EngramHash::multipliers(std::int64_t table) const {
  return multipliers_[static_cast<std::size_t>(table)];
}
std::span<const std::int64_t> EngramHash::primes(std::int64_t table) const {
  return primes_[static_cast<std::size_t>(table)];
}

}  // namespace deepinfer
