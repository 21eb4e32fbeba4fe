// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): four random words as a
// pure function of a key and a counter. Nothing is stored, so a draw depends on what it is for and on nothing
// else.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace deepinfer {

using PhiloxWords = std::array<std::uint32_t, 4>;

constexpr PhiloxWords philox4x32(PhiloxWords counter, std::uint64_t key) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

/// What a random number is for; part of the counter, so that streams never share numbers.
enum class RandomStream : std::uint32_t { kTarget = 0, kDraft = 1, kAccept = 2, kResidual = 3 };

/// The words of tokens 4*group .. 4*group+3 at one position (the index of the token being drawn in its
/// sequence).
constexpr PhiloxWords token_words(std::uint64_t seed, std::uint32_t group, std::int64_t position,
                                  RandomStream stream) {
  return philox4x32({group, static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(stream), 0},
                    seed);
}

/// The words of Count consecutive groups from `first` on, word i of group g in out[i][g]: the same numbers as
/// token_words, laid out so that the compiler can work on several groups at once.
template <std::size_t Count>
inline void token_words_block(std::uint64_t seed, std::uint32_t first, std::int64_t position,
                              RandomStream stream, std::uint32_t (&out)[4][Count]) {
  for (std::size_t g = 0; g < Count; ++g) {
    out[0][g] = first + static_cast<std::uint32_t>(g);
    out[1][g] = static_cast<std::uint32_t>(position);
    out[2][g] = static_cast<std::uint32_t>(stream);
    out[3][g] = 0;
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (std::size_t g = 0; g < Count; ++g) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53} * out[0][g];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * out[2][g];
      out[0][g] = static_cast<std::uint32_t>(p1 >> 32) ^ out[1][g] ^ k0;
      out[2][g] = static_cast<std::uint32_t>(p0 >> 32) ^ out[3][g] ^ k1;
      out[1][g] = static_cast<std::uint32_t>(p1);
      out[3][g] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
}

/// Scrambles 64 bits (the finaliser of SplitMix64).
constexpr std::uint64_t scramble(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// The seed of answer `index` of a request.
constexpr std::uint64_t answer_seed(std::uint64_t request_seed, std::int32_t index) {
  return scramble(request_seed ^ scramble(static_cast<std::uint64_t>(index)));
}

/// The seed of a request that brings none.
constexpr std::uint64_t derived_seed(std::uint64_t engine_seed, std::string_view request_id) {
  std::uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const char c : request_id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return scramble(engine_seed ^ scramble(hash));
}

}  // namespace deepinfer
