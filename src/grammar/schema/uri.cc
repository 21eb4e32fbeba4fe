#include "grammar/schema/uri.h"

#include <optional>
#include <vector>

namespace deepinfer::schema {
namespace {

struct Parts {
  std::string scheme;  // with the colon
  std::optional<std::string> authority;
  std::string path;
  std::optional<std::string> query;
  std::optional<std::string> fragment;
};

bool is_scheme(std::string_view s) {
  if (s.empty() || !((s[0] | 0x20) >= 'a' && (s[0] | 0x20) <= 'z')) return false;
  for (const char c : s) {
    const bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    if (!letter && !(c >= '0' && c <= '9') && c != '+' && c != '-' && c != '.') return false;
  }
  return true;
}

Parts parse(std::string_view uri) {
  Parts out;
  if (const auto hash = uri.find('#'); hash != std::string_view::npos) {
    out.fragment = std::string(uri.substr(hash + 1));
    uri = uri.substr(0, hash);
  }
  if (const auto mark = uri.find('?'); mark != std::string_view::npos) {
    out.query = std::string(uri.substr(mark + 1));
    uri = uri.substr(0, mark);
  }
  if (const auto colon = uri.find(':'); colon != std::string_view::npos && is_scheme(uri.substr(0, colon))) {
    out.scheme = std::string(uri.substr(0, colon + 1));
    uri = uri.substr(colon + 1);
  }
  if (uri.starts_with("//")) {
    const auto end = uri.find('/', 2);
    out.authority = std::string(uri.substr(2, end == std::string_view::npos ? end : end - 2));
    uri = end == std::string_view::npos ? std::string_view() : uri.substr(end);
  }
  out.path = std::string(uri);
  return out;
}

std::string remove_dot_segments(std::string_view path) {
  const bool absolute = path.starts_with('/');
  std::vector<std::string_view> kept;
  bool open_end = false;  // the path ends in a directory
  std::size_t at = absolute ? 1 : 0;
  while (at <= path.size()) {
    const auto slash = path.find('/', at);
    const bool last = slash == std::string_view::npos;
    const std::string_view segment = path.substr(at, last ? slash : slash - at);
    open_end = false;
    if (segment == "..") {
      if (!kept.empty()) kept.pop_back();
      open_end = true;
    } else if (segment == ".") {
      open_end = true;
    } else {
      kept.push_back(segment);
    }
    if (last) break;
    at = slash + 1;
  }
  std::string out = absolute ? "/" : "";
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (i != 0) out += '/';
    out += kept[i];
  }
  if (open_end && !kept.empty()) out += '/';
  return out;
}

std::string print(const Parts& p) {
  std::string out = p.scheme;
  if (p.authority) out += "//" + *p.authority;
  out += p.path;
  if (p.query) out += "?" + *p.query;
  if (p.fragment) out += "#" + *p.fragment;
  return out;
}

}  // namespace

std::string resolve_uri(std::string_view base_text, std::string_view reference) {
  Parts ref = parse(reference);
  const bool opaque = !ref.scheme.empty() && !ref.authority && !ref.path.starts_with('/');  // urn:uuid:...
  if (!ref.scheme.empty() || base_text.empty()) {
    if (!opaque) ref.path = remove_dot_segments(ref.path);
    return print(ref);
  }
  const Parts base = parse(base_text);
  Parts out;
  out.scheme = base.scheme;
  out.fragment = ref.fragment;
  if (ref.authority) {
    out.authority = ref.authority;
    out.path = remove_dot_segments(ref.path);
    out.query = ref.query;
    return print(out);
  }
  out.authority = base.authority;
  if (ref.path.empty()) {
    out.path = base.path;
    out.query = ref.query ? ref.query : base.query;
    return print(out);
  }
  out.query = ref.query;
  if (ref.path.starts_with('/')) {
    out.path = remove_dot_segments(ref.path);
    return print(out);
  }
  const auto slash = base.path.rfind('/');
  std::string merged =
      slash == std::string::npos ? (base.authority ? "/" : "") : base.path.substr(0, slash + 1);
  out.path = remove_dot_segments(merged + ref.path);
  return print(out);
}

SplitUri split_fragment(std::string_view uri) {
  const auto hash = uri.find('#');
  if (hash == std::string_view::npos) return {uri, {}};
  return {uri.substr(0, hash), uri.substr(hash + 1)};
}

std::string percent_decode(std::string_view text) {
  const auto hex = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace deepinfer::schema
