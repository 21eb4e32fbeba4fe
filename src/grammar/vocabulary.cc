#include "grammar/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>

#include "grammar/mask_store.h"

namespace deepinfer::grammar {

Vocabulary::Vocabulary() = default;
Vocabulary::~Vocabulary() = default;

Result<VocabularyPtr> Vocabulary::create(Options options) {
  if (options.tokens.empty()) return invalid_argument("the vocabulary has no tokens");
  if (options.tokens.size() > (1u << 24)) return invalid_argument("the vocabulary has more than 2^24 tokens");
  if (options.logits_width == 0) options.logits_width = options.tokens.size();
  if (options.logits_width < options.tokens.size())
    return invalid_argument(fmt::format("the logits are {} wide but the vocabulary has {} tokens",
                                        options.logits_width, options.tokens.size()));
  const auto count = static_cast<TokenId>(options.tokens.size());
  std::shared_ptr<Vocabulary> v(new Vocabulary);
  v->width_ = options.logits_width;
  v->tokens_ = std::move(options.tokens);
  v->special_.assign(v->tokens_.size(), false);
  for (const auto* list : {&options.special_tokens, &options.eos_tokens}) {
    for (TokenId id : *list) {
      if (id < 0 || id >= count)
        return invalid_argument(fmt::format("special token {} is not in the vocabulary", id));
      const auto i = static_cast<std::size_t>(id);
      if (v->special_[i]) continue;
      v->special_[i] = true;
      v->special_names_.emplace_back(std::move(v->tokens_[i]), id);
      v->tokens_[i].clear();
    }
  }
  std::sort(v->special_names_.begin(), v->special_names_.end());
  v->eos_ = std::move(options.eos_tokens);
  std::sort(v->eos_.begin(), v->eos_.end());
  v->eos_.erase(std::unique(v->eos_.begin(), v->eos_.end()), v->eos_.end());
  std::vector<std::pair<std::string_view, TokenId>> entries;
  for (TokenId id = 0; id < count; ++id) {
    std::string& text = v->tokens_[static_cast<std::size_t>(id)];
    if (text.size() > kMaxTokenBytes) text.clear();
    if (!text.empty()) entries.emplace_back(text, id);
  }
  v->trie_ = TokenTrie::build(std::move(entries));
  v->build_slices();
  v->mask_store_ = std::make_unique<MaskStore>(options.mask_store_bytes);
  return VocabularyPtr(std::move(v));
}

bool Vocabulary::is_eos(TokenId id) const {
  return std::binary_search(eos_.begin(), eos_.end(), id);
}

TokenId Vocabulary::find_special(std::string_view spelling) const {
  const auto it = std::lower_bound(special_names_.begin(), special_names_.end(), spelling,
                                   [](const auto& entry, std::string_view s) { return entry.first < s; });
  return it != special_names_.end() && it->first == spelling ? it->second : -1;
}

TokenId Vocabulary::find_token(std::string_view spelling) const {
  const TokenId special = find_special(spelling);
  if (special >= 0 || spelling.empty()) return special;
  const TokenTrie::Node* nodes = trie_->data();
  std::uint32_t at = 0, end = trie_->node_count(), last = 0;
  for (char c : spelling) {
    while (at < end && nodes[at].byte != static_cast<std::uint8_t>(c)) at += nodes[at].subtree;
    if (at >= end) return -1;
    end = at + nodes[at].subtree;
    last = at++;
  }
  const auto tokens = trie_->tokens_of(last);
  return tokens.empty() ? -1 : tokens[0];
}

std::vector<Vocabulary::MarkerPiece> Vocabulary::split_marker(std::string_view marker) const {
  std::vector<MarkerPiece> out;
  while (!marker.empty()) {
    const std::pair<std::string, TokenId>* longest = nullptr;
    for (const auto& entry : special_names_) {
      if (entry.first.empty() || !marker.starts_with(entry.first)) continue;
      if (longest == nullptr || entry.first.size() > longest->first.size()) longest = &entry;
    }
    if (longest != nullptr) {
      out.push_back({{}, longest->second});
      marker.remove_prefix(longest->first.size());
      continue;
    }
    if (out.empty() || out.back().token >= 0) out.push_back({{}, -1});
    out.back().text.push_back(marker[0]);
    marker.remove_prefix(1);
  }
  return out;
}

namespace {

// Characters of a token that is all ordinary text: printable ASCII but quote and backslash, and well-formed
// multi-byte characters. 0 when it is not.
std::uint32_t ordinary_chars(std::string_view text) {
  std::uint32_t count = 0;
  for (std::size_t pos = 0; pos < text.size(); ++count) {
    const auto b = static_cast<std::uint8_t>(text[pos]);
    if (b < 0x80) {
      if (b < 0x20 || b == 0x7F || b == '"' || b == '\\') return 0;
      ++pos;
    } else {
      std::uint32_t code_point = 0;
      if (!next_utf8(text, pos, code_point)) return 0;
    }
  }
  return count;
}

}  // namespace

void Vocabulary::build_slices() {
  constexpr std::uint32_t kMaxSliceChars = 24;  // proving that a slice fits costs time per character
  const ByteSet lower = ByteSet::range('a', 'z');
  const ByteSet letters = lower | ByteSet::range('A', 'Z');
  ByteSet ordinary = ByteSet::range(0x20, 0x7E);
  ordinary.reset('"');
  ordinary.reset('\\');
  // From the narrowest to the widest; a token goes to the first slice that holds it.
  slices_.resize(5);
  slices_[0].first_ascii = slices_[0].rest_ascii = lower;
  slices_[1].first_ascii = slices_[1].rest_ascii = letters;
  slices_[2].first_ascii = ByteSet::of(' ');
  slices_[2].rest_ascii = letters;
  slices_[3].multibyte = true;
  slices_[4].first_ascii = slices_[4].rest_ascii = ordinary;
  slices_[4].multibyte = true;
  for (VocabularySlice& slice : slices_) {
    for (auto [set, kind] :
         {std::pair(&slice.first_ascii, &slice.first_kind), std::pair(&slice.rest_ascii, &slice.rest_kind)})
      *kind = *set == lower      ? 1
              : *set == letters  ? 2
              : *set == ordinary ? 3
                                 : 4;  // 4: the blank; empty sets are never asked for
  }
  using Entries = std::vector<std::pair<std::string_view, TokenId>>;
  std::vector<std::array<Entries, VocabularySlice::kLengths>> groups(slices_.size());
  Entries rest;
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    const std::string_view text = tokens_[id];
    if (text.empty()) continue;
    const std::uint32_t chars = ordinary_chars(text);
    if (chars == 0 || chars > kMaxSliceChars) {
      rest.emplace_back(text, static_cast<TokenId>(id));
      continue;
    }
    for (std::size_t s = 0; s < slices_.size(); ++s) {
      VocabularySlice& slice = slices_[s];
      bool inside = true;
      for (std::size_t i = 0; i < text.size() && inside; ++i) {
        const auto b = static_cast<std::uint8_t>(text[i]);
        inside = b >= 0x80 ? slice.multibyte : (i == 0 ? slice.first_ascii : slice.rest_ascii).test(b);
      }
      if (!inside) continue;
      const std::size_t group = std::min<std::size_t>(chars, VocabularySlice::kLengths) - 1;
      groups[s][group].emplace_back(text, static_cast<TokenId>(id));
      slice.max_chars = std::max(slice.max_chars, chars);
      break;
    }
  }
  for (std::size_t s = 0; s < slices_.size(); ++s) {
    std::vector<std::uint32_t> mask(mask_words(), 0);
    for (std::size_t g = 0; g < groups[s].size(); ++g) {
      for (const auto& [text, id] : groups[s][g]) mask[static_cast<std::size_t>(id) >> 5] |= 1u << (id & 31);
      slices_[s].up_to[g] = mask;
      slices_[s].by_length[g] = TokenTrie::build(std::move(groups[s][g]));
    }
  }
  rest_ = TokenTrie::build(std::move(rest));
}

}  // namespace deepinfer::grammar
