// JSON text as Python's json.dumps(value, ensure_ascii=False) writes it: ", " and ": " between items, members
// in the given order, floating-point numbers as repr() does. Chat models were trained on this spelling of
// tools and schemas.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

class Json;

std::string python_json_dumps(const Json& value);

/// Appends `text` as it stands between the quotes of a JSON string (no quotes added). Works piece by piece:
/// pieces escaped one after the other give what the whole gives.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace deepinfer
