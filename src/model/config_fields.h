// The fields of a config.json under one set of names, whichever of its spellings the file uses: the Hugging
// Face names (flat, or composite with text_config and vision_config) or those of the reference's
// inference/config.json.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"

namespace deepinfer {

/// Canonical name -> value and place. Canonical names are the Hugging Face ones; the vision tower's carry the
/// prefix "vision.", those of quantization_config "quant.", those of rope_scaling "yarn.". The document must
/// outlive it.
struct ConfigFields {
  std::map<std::string, JsonRef, std::less<>> values;
  bool reference_names = false;  ///< the file is an inference/config.json
  bool has_vision = false;
  std::vector<std::string>
      problems;  ///< unknown fields, fields given twice with different values, wrong containers

  /// nullptr when absent or null.
  const JsonRef* find(std::string_view name) const;
  void problem(const Error& error) { problems.push_back(error.to_string()); }
};

/// Sorts every member of the document into ConfigFields. A field that is neither known nor on the list of
/// those without influence on the maths becomes a problem that names it.
ConfigFields collect_config_fields(const Json& document);

}  // namespace deepinfer
