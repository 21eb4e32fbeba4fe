#include "grammar/structural.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer::grammar {
namespace {

using Pieces = std::vector<Vocabulary::MarkerPiece>;

Symbol marker_symbol(GrammarBuilder& builder, const Pieces& pieces) {
  std::vector<Symbol> parts;
  for (const auto& p : pieces)
    parts.push_back(p.token >= 0 ? builder.tokens({&p.token, 1}) : builder.literal(p.text));
  return builder.sequence(parts);
}

// One way in which a region can begin: text that ends with a trigger, or a token.
struct Trigger {
  std::string text;  // whole trigger
  Pieces pieces;
  std::vector<Symbol> bodies;  // what may follow, one a region
};

class StructuralBuilder {
 public:
  StructuralBuilder(GrammarBuilder& builder, const StructuralSpec& spec, const Vocabulary& vocabulary)
      : builder_(builder), spec_(spec), vocabulary_(vocabulary) {}

  Result<Symbol> run() {
    if (spec_.min_regions > spec_.max_regions)
      return invalid_argument("min_regions is larger than max_regions");
    for (std::size_t i = 0; i < spec_.regions.size(); ++i)
      if (spec_.regions[i].begin.empty())
        return invalid_argument("a region has no beginning", fmt::format("region {}", i));
    return spec_.free_text ? with_free_text() : regions_only();
  }

 private:
  Result<Symbol> rest_of(const TagRegion& region, std::size_t consumed) {
    DI_ASSIGN(const Symbol content, region.content(builder_));
    return builder_.sequence(
        {marker_symbol(builder_, vocabulary_.split_marker(std::string_view(region.begin).substr(consumed))),
         content, marker_symbol(builder_, vocabulary_.split_marker(region.end))});
  }

  Result<Symbol> regions_only() {
    std::vector<Symbol> all;
    for (const TagRegion& r : spec_.regions) {
      DI_ASSIGN(const Symbol s, rest_of(r, 0));
      all.push_back(s);
    }
    std::optional<Symbol> separator;
    if (!spec_.separator.empty())
      separator = marker_symbol(builder_, vocabulary_.split_marker(spec_.separator));
    return builder_.repeat(builder_.alternatives(all), spec_.min_regions, spec_.max_regions, separator);
  }

  Status find_triggers() {
    std::vector<std::string> texts = spec_.triggers;
    if (texts.empty())
      for (const TagRegion& r : spec_.regions)
        if (std::find(texts.begin(), texts.end(), r.begin) == texts.end()) texts.push_back(r.begin);
    for (const std::string& t : texts) {
      if (t.empty()) return invalid_argument("a trigger is empty");
      Trigger trigger{t, vocabulary_.split_marker(t), {}};
      if (trigger.pieces.size() > 1) {  // the first piece alone is enough to notice the region
        trigger.pieces.resize(1);
        trigger.text =
            trigger.pieces[0].token >= 0 ? t.substr(0, t.size() - tail_size(t)) : trigger.pieces[0].text;
      }
      const bool known = std::any_of(triggers_.begin(), triggers_.end(),
                                     [&](const Trigger& o) { return o.text == trigger.text; });
      if (!known) triggers_.push_back(std::move(trigger));
    }
    for (const Trigger& a : triggers_)
      for (const Trigger& b : triggers_)
        if (&a != &b && a.text.find(b.text) != std::string::npos)
          return invalid_argument(fmt::format("the trigger '{}' contains the trigger '{}'", a.text, b.text));
    return {};
  }

  // Bytes of a marker behind its first piece.
  std::size_t tail_size(const std::string& marker) const {
    const Pieces pieces = vocabulary_.split_marker(marker);
    std::size_t cut = marker.size();
    for (std::size_t n = 1; n <= marker.size(); ++n) {
      const Pieces head = vocabulary_.split_marker(std::string_view(marker).substr(0, n));
      if (head.size() == 1 && head[0].token == pieces[0].token) {
        cut = n;
        break;
      }
    }
    return marker.size() - cut;
  }

  Result<Symbol> with_free_text() {
    DI_TRY(find_triggers());
    for (std::size_t i = 0; i < spec_.regions.size(); ++i) {
      const TagRegion& region = spec_.regions[i];
      auto owner = std::find_if(triggers_.begin(), triggers_.end(),
                                [&](const Trigger& t) { return region.begin.starts_with(t.text); });
      if (owner == triggers_.end())
        return invalid_argument("a region begins with none of the triggers", fmt::format("region {}", i));
      DI_ASSIGN(const Symbol body, rest_of(region, owner->text.size()));
      owner->bodies.push_back(body);
    }
    RegexPool& regex = builder_.regex();
    std::vector<RegexId> texts;
    for (const Trigger& t : triggers_)
      if (t.pieces[0].token < 0) texts.push_back(regex.literal(t.text));
    const RegexId any_trigger = regex.alt(texts);
    const RegexId first_trigger = regex.shortest(regex.concat(kAllRegex, any_trigger));
    const RegexId plain =
        texts.empty() ? kAllRegex : regex.complement(regex.concat({kAllRegex, any_trigger, kAllRegex}));
    const Symbol plain_text = builder_.lexeme(plain);
    std::vector<Symbol> items;
    for (const Trigger& t : triggers_) {
      const Symbol body = builder_.alternatives(t.bodies);
      if (t.pieces[0].token >= 0) {
        items.push_back(builder_.sequence({plain_text, builder_.tokens({&t.pieces[0].token, 1}), body}));
      } else {
        const RegexId up_to = regex.all_of({first_trigger, regex.concat(kAllRegex, regex.literal(t.text))});
        items.push_back(builder_.sequence({builder_.lexeme(up_to), body}));
      }
    }
    return builder_.sequence(
        {builder_.repeat(builder_.alternatives(items), spec_.min_regions, spec_.max_regions), plain_text});
  }

  GrammarBuilder& builder_;
  const StructuralSpec& spec_;
  const Vocabulary& vocabulary_;
  std::vector<Trigger> triggers_;
};

}  // namespace

Result<Symbol> build_structural(GrammarBuilder& builder, const StructuralSpec& spec,
                                const Vocabulary& vocabulary) {
  return StructuralBuilder(builder, spec, vocabulary).run();
}

Result<Symbol> build_after_reasoning(GrammarBuilder& builder, const std::string& end_marker, bool optional,
                                     const SymbolMaker& answer, const Vocabulary& vocabulary) {
  const Pieces pieces = vocabulary.split_marker(end_marker);
  if (pieces.empty()) return invalid_argument("the marker that ends the reasoning is empty");
  RegexPool& regex = builder.regex();
  Symbol reasoning;
  if (pieces[0].token >= 0) {
    reasoning = builder.sequence({builder.lexeme(kAllRegex), marker_symbol(builder, pieces)});
  } else if (pieces.size() == 1) {
    reasoning = builder.lexeme(regex.shortest(regex.concat(kAllRegex, regex.literal(pieces[0].text))));
  } else {
    return invalid_argument("the marker that ends the reasoning mixes text and a special token");
  }
  DI_ASSIGN(const Symbol answered, answer(builder));
  const Symbol full = builder.sequence({reasoning, answered});
  return optional ? builder.alternatives({full, answered}) : full;
}

Result<GrammarPtr> compile_structural(const StructuralSpec& spec, const VocabularyPtr& vocabulary,
                                      const CompileOptions& options) {
  GrammarBuilder builder(options.limits);
  DI_ASSIGN(const Symbol start, build_structural(builder, spec, *vocabulary));
  builder.set_start(start);
  return compile(std::move(builder), vocabulary, options.cancel);
}

}  // namespace deepinfer::grammar
