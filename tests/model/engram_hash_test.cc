#include "model/engram_hash.h"

#include <gtest/gtest.h>

#include <numeric>

#include "support/golden.h"

namespace deepinfer {
namespace {

EngramConfig flash_config() {
  return {.layers = {1, 14},
          .table_rows = {384006168, 384016682},
          .max_ngram = 4,
          .heads = 8,
          .head_dim = 256,
          .vocab_start = 16000000,
          .pad_token = 2,
          .compressed_vocab = 99092};
}

std::vector<std::int32_t> ramp(std::int64_t distinct, std::size_t size) {
  std::vector<std::int32_t> map(size);
  for (std::size_t i = 0; i < size; ++i)
    map[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % distinct);
  return map;
}

TEST(EngramHash, ReproducesThePublishedMultipliersAndPrimes) {
  const Result<EngramHash> hash = EngramHash::create(flash_config(), ramp(99092, 129280));
  ASSERT_TRUE(hash.ok()) << hash.error().to_string();
  EXPECT_EQ(std::vector<std::int64_t>(hash->multipliers(0).begin(), hash->multipliers(0).end()),
            (std::vector<std::int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(std::vector<std::int64_t>(hash->multipliers(1).begin(), hash->multipliers(1).end()),
            (std::vector<std::int64_t>{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
  EXPECT_EQ(hash->primes(0).front(), 16000057);
  EXPECT_EQ(hash->primes(0).back(), 16000463);
  EXPECT_EQ(hash->primes(1).front(), 16000477);
  EXPECT_EQ(hash->primes(1).back(), 16000889);
}

TEST(EngramHash, RefusesTablesThatDoNotFit) {
  EngramConfig config = flash_config();
  config.table_rows[1] += 1;
  const Result<EngramHash> hash = EngramHash::create(config, ramp(99092, 129280));
  ASSERT_FALSE(hash.ok());
  EXPECT_NE(hash.error().message.find("layer 14"), std::string::npos) << hash.error().message;
  EXPECT_FALSE(EngramHash::create(flash_config(), ramp(99091, 129280)).ok());
}

TEST(EngramHash, PicturesAndTheStartCountAsPadding) {
  const EngramHash hash = EngramHash::create(flash_config(), ramp(99092, 129280)).value();
  std::vector<std::int64_t> with_picture(24), at_start(24);
  hash.rows(0, std::vector<TokenId>{7, 8, -1, 30, 40}, with_picture.data());
  hash.rows(0, std::vector<TokenId>{30, 40}, at_start.data());
  EXPECT_EQ(with_picture, at_start);
}

}  // namespace
}  // namespace deepinfer
