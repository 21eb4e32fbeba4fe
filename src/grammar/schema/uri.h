// URI references as JSON Schema uses them: RFC 3986 resolution against a base, no network anywhere.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer::schema {

/// `reference` resolved against `base` (RFC 3986 section 5.2), fragment included. With an empty base the
/// reference is returned with its dot segments removed.
std::string resolve_uri(std::string_view base, std::string_view reference);

/// The part before '#', and the part after it still percent-encoded (empty without a '#').
struct SplitUri {
  std::string_view resource;
  std::string_view fragment;
};
SplitUri split_fragment(std::string_view uri);

/// %41 -> A; a malformed escape stays as written.
std::string percent_decode(std::string_view text);

}  // namespace deepinfer::schema
