// The parts of a Tokenizer, filled by the loader (tokenizer_json.cc) and read by tokenizer.cc. Internal.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

struct Tokenizer::Tables {
  struct StringHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };

  TokenBytes texts;  // as spelled in the file
  TokenBytes bytes;  // what they stand for
  std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>> id_of;
  std::vector<bool> added, special;
  // Added tokens are matched in two passes: first those with "normalized": false, then the others in what is
  // left.
  AddedTokenMatcher raw_added, normalized_added;
  PreTokenizer pretokenizer;
  Bpe bpe;

  void encode_plain(std::string_view text, std::vector<TokenId>& out) const;
  template <class Rest>
  static void split_added(const AddedTokenMatcher& matcher, std::string_view text, std::vector<TokenId>& out,
                          Rest rest);
};

class TokenizerBuilder {
 public:
  using Tables = Tokenizer::Tables;
  static Tokenizer finish(Tables tables);
};

/// The byte each character of the GPT-2 byte alphabet stands for, or -1. `code_point` may be any value.
int byte_of_alphabet(char32_t code_point);

}  // namespace deepinfer
