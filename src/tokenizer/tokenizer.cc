#include "tokenizer/tokenizer.h"

#include "tokenizer/tokenizer_tables.h"
#include "tokenizer/utf8.h"

namespace deepinfer {

Tokenizer::Tokenizer(std::shared_ptr<const Tables> tables) : tables_(std::move(tables)) {}

Tokenizer TokenizerBuilder::finish(Tokenizer::Tables tables) {
  return Tokenizer(std::make_shared<const Tokenizer::Tables>(std::move(tables)));
}

void Tokenizer::Tables::encode_plain(std::string_view text, std::vector<TokenId>& out) const {
  while (!text.empty()) {
    const std::size_t good = utf8::valid_prefix(text);
    pretokenizer.for_each_piece(text.substr(0, good),
                                [&](std::string_view piece) { bpe.encode_piece(piece, out); });
    text.remove_prefix(good);
    if (text.empty()) break;
    bpe.encode_piece(text.substr(0, 1), out);
    text.remove_prefix(1);
  }
}

template <class Rest>
void Tokenizer::Tables::split_added(const AddedTokenMatcher& matcher, std::string_view text,
                                    std::vector<TokenId>& out, Rest rest) {
  if (matcher.empty()) {
    rest(text);
    return;
  }
  std::size_t from = 0;
  for (;;) {
    const AddedTokenMatcher::Match match = matcher.find(text, from);
    if (match.id < 0) break;
    if (match.begin > from) rest(text.substr(from, match.begin - from));
    out.push_back(match.id);
    from = match.end;
  }
  if (from < text.size()) rest(text.substr(from));
}

void Tokenizer::encode_to(std::string_view text, EncodeOptions options, std::vector<TokenId>& out) const {
  const Tables& t = *tables_;
  if (!options.parse_special) {
    t.encode_plain(text, out);
    return;
  }
  Tables::split_added(t.raw_added, text, out, [&](std::string_view part) {
    Tables::split_added(t.normalized_added, part, out,
                        [&](std::string_view rest) { t.encode_plain(rest, out); });
  });
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<TokenId> out;
  out.reserve(text.size() / 3 + 4);
  encode_to(text, options, out);
  return out;
}

std::vector<TokenId> Tokenizer::encode_segments(std::span<const PromptSegment> segments) const {
  std::vector<TokenId> out;
  std::string joined;
  for (std::size_t i = 0; i < segments.size();) {
    if (segments[i].kind != PromptSegment::Kind::kText) {
      out.push_back(segments[i++].token);
      continue;
    }
    const std::size_t first = i;
    while (i < segments.size() && segments[i].kind == PromptSegment::Kind::kText) ++i;
    if (i - first == 1) {
      encode_to(segments[first].text, {}, out);
      continue;
    }
    joined.clear();
    for (std::size_t k = first; k < i; ++k) joined += segments[k].text;
    encode_to(joined, {}, out);
  }
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string out;
  for (TokenId id : ids) out += token_bytes(id);
  return out;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return id < 0 || id >= vocab_size() ? std::string_view() : tables_->bytes[id];
}

std::string_view Tokenizer::token_text(TokenId id) const {
  return id < 0 || id >= vocab_size() ? std::string_view() : tables_->texts[id];
}

bool Tokenizer::is_added(TokenId id) const {
  return id >= 0 && id < vocab_size() && tables_->added[static_cast<std::size_t>(id)];
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && id < vocab_size() && tables_->special[static_cast<std::size_t>(id)];
}

std::int64_t Tokenizer::vocab_size() const {
  return tables_->bytes.size();
}

std::optional<TokenId> Tokenizer::find_token(std::string_view text) const {
  const auto it = tables_->id_of.find(text);
  if (it == tables_->id_of.end()) return std::nullopt;
  return it->second;
}

bool Tokenizer::uses_fast_split() const {
  return tables_->pretokenizer.uses_scan();
}

}  // namespace deepinfer
