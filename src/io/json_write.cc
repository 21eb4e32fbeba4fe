#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "io/json.h"

namespace deepinfer {
namespace {

/// Length of the valid UTF-8 sequence at text[i], or 0.
std::size_t utf8_length(std::string_view text, std::size_t i) {
  const auto at = [&](std::size_t k) { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0u; };
  const auto tail = [&](std::size_t k) { return (at(k) & 0xc0u) == 0x80u; };
  const unsigned a = at(i);
  const unsigned b = at(i + 1);
  if (a < 0x80) return 1;
  if (a >= 0xc2 && a <= 0xdf) return tail(i + 1) ? 2 : 0;
  if (a >= 0xe0 && a <= 0xef) {
    if (!tail(i + 1) || !tail(i + 2) || (a == 0xe0 && b < 0xa0) || (a == 0xed && b > 0x9f)) return 0;
    return 3;
  }
  if (a >= 0xf0 && a <= 0xf4) {
    if (!tail(i + 1) || !tail(i + 2) || !tail(i + 3) || (a == 0xf0 && b < 0x90) || (a == 0xf4 && b > 0x8f))
      return 0;
    return 4;
  }
  return 0;
}

void write_string(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const char* escape = nullptr;
    switch (c) {
      case '"':
        escape = "\\\"";
        break;
      case '\\':
        escape = "\\\\";
        break;
      case '\b':
        escape = "\\b";
        break;
      case '\f':
        escape = "\\f";
        break;
      case '\n':
        escape = "\\n";
        break;
      case '\r':
        escape = "\\r";
        break;
      case '\t':
        escape = "\\t";
        break;
      default:
        break;
    }
    if (escape != nullptr) {
      out += escape;
      ++i;
    } else if (c < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
      ++i;
    } else if (const std::size_t length = utf8_length(text, i); length > 0) {
      out += text.substr(i, length);
      i += length;
    } else {
      out += "\xef\xbf\xbd";
      ++i;
    }
  }
  out += '"';
}

void write_double(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  const std::size_t begin = out.size();
  fmt::format_to(std::back_inserter(out), "{}", value);
  if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";  // stays a double when read again
}

class Writer {
 public:
  Writer(std::string& out, int indent) : out_(out), indent_(indent) {}

  void write(const Json& value, int level) {
    switch (value.kind()) {
      case Json::Kind::kNull:
        out_ += "null";
        break;
      case Json::Kind::kBool:
        out_ += value.as_bool() ? "true" : "false";
        break;
      case Json::Kind::kInt:
        fmt::format_to(std::back_inserter(out_), "{}", value.as_int());
        break;
      case Json::Kind::kUint:
        fmt::format_to(std::back_inserter(out_), "{}", value.as_uint());
        break;
      case Json::Kind::kDouble:
        write_double(out_, value.as_double());
        break;
      case Json::Kind::kString:
        write_string(out_, value.as_string());
        break;
      case Json::Kind::kArray:
        write_list(value.as_array(), '[', ']', level, [this](const Json& e, int l) { write(e, l); });
        break;
      case Json::Kind::kObject:
        write_list(value.as_object(), '{', '}', level, [this](const JsonMember& m, int l) {
          write_string(out_, m.first);
          out_ += indent_ < 0 ? ":" : ": ";
          write(m.second, l);
        });
        break;
    }
  }

 private:
  template <class List, class Each>
  void write_list(const List& list, char open, char close, int level, Each each) {
    out_ += open;
    bool first = true;
    for (const auto& item : list) {
      if (!first) out_ += ',';
      first = false;
      new_line(level + 1);
      each(item, level + 1);
    }
    if (!first) new_line(level);
    out_ += close;
  }
  void new_line(int level) {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(level) * static_cast<std::size_t>(indent_), ' ');
  }

  std::string& out_;
  int indent_;
};

}  // namespace

std::string to_json_text(const Json& value, int indent) {
  std::string out;
  Writer(out, indent).write(value, 0);
  return out;
}

std::string json_quote(std::string_view text) {
  std::string out;
  write_string(out, text);
  return out;
}

}  // namespace deepinfer
