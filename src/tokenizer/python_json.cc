#include "tokenizer/python_json.h"

#include <fmt/format.h>

#include <cmath>

#include "io/json.h"

namespace deepinfer {
namespace {

void append_string(std::string& out, std::string_view text) {
  out += '"';
  append_json_escaped(out, text);
  out += '"';
}

// repr(): the shortest digits that read back, exponent form below 1e-4 and from 1e16 on.
void append_double(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value < 0 ? "-Infinity" : "Infinity";
  } else {
    const std::string digits = fmt::format("{}", value);
    out += digits;
    if (digits.find_first_of(".e") == std::string::npos) out += ".0";
  }
}

// Recursion is bounded by the depth limit of the parser the value came from.
void append(std::string& out, const Json& value) {
  switch (value.kind()) {
    case Json::Kind::kNull:
      out += "null";
      return;
    case Json::Kind::kBool:
      out += value.as_bool() ? "true" : "false";
      return;
    case Json::Kind::kInt:
      out += std::to_string(value.as_int());
      return;
    case Json::Kind::kUint:
      out += std::to_string(value.as_uint());
      return;
    case Json::Kind::kDouble:
      append_double(out, value.as_double());
      return;
    case Json::Kind::kString:
      append_string(out, value.as_string());
      return;
    case Json::Kind::kArray: {
      out += '[';
      const char* separator = "";
      for (const Json& item : value.as_array()) {
        out += separator;
        append(out, item);
        separator = ", ";
      }
      out += ']';
      return;
    }
    case Json::Kind::kObject: {
      out += '{';
      const char* separator = "";
      for (const auto& [key, item] : value.as_object()) {
        out += separator;
        append_string(out, key);
        out += ": ";
        append(out, item);
        separator = ", ";
      }
      out += '}';
      return;
    }
  }
}

}  // namespace

void append_json_escaped(std::string& out, std::string_view text) {
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
}

std::string python_json_dumps(const Json& value) {
  std::string out;
  append(out, value);
  return out;
}

}  // namespace deepinfer
