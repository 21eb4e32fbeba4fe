// Parsing: nlohmann's SAX reader checks the grammar and UTF-8, this file builds our values and holds the
// limits.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "io/json.h"

namespace deepinfer {
namespace {

/// "line L, column C (byte B)" of a byte offset; columns count bytes from 1.
std::string text_place(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? offset + 1 : offset - newline;
  return fmt::format("line {}, column {} (byte {})", line, column, offset);
}

/// Offset of the bracket that opens level max_depth + 1, or npos. Strings are skipped, nothing else is
/// checked.
std::size_t too_deep_at(std::string_view text, std::size_t max_depth) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_depth) return i;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return std::string_view::npos;
}

/// nlohmann's messages start with "[json.exception.parse_error.101] parse error at line 1, column 2: "; keep
/// the rest.
std::string reason_of(std::string message) {
  const std::size_t bracket = message.find("] ");
  if (message.rfind("[json.exception", 0) == 0 && bracket != std::string::npos) message.erase(0, bracket + 2);
  const std::size_t syntax = message.find("syntax error ");
  if (syntax != std::string::npos)
    message.erase(0, syntax);
  else if (message.rfind("parse error", 0) == 0 && message.find(": ") != std::string::npos)
    message.erase(0, message.find(": ") + 2);
  constexpr std::size_t kLongest = 200;
  if (message.size() > kLongest) message = message.substr(0, kLongest) + "...";
  // The message quotes what was read, which may not be UTF-8: quote and unquote to clean it.
  message = json_quote(message);
  return message.substr(1, message.size() - 2);
}

class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(std::string_view text) : text_(text) {}

  bool null() override { return put(Json()); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(static_cast<std::int64_t>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return put(static_cast<std::uint64_t>(value)); }
  bool number_float(number_float_t value, const string_t&) override {
    return put(static_cast<double>(value));
  }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool key(string_t& key) override {
    open_.back().value.as_object().emplace_back(std::move(key), Json());
    return true;
  }
  bool end_array() override { return close(); }
  bool end_object() override {
    if (const std::string* twice = repeated_key(open_.back().value.as_object()); twice != nullptr) {
      error_ = invalid_argument(fmt::format("the key {} appears twice", json_quote(*twice)), pointer());
      return false;
    }
    return close();
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& what) override {
    error_ = invalid_argument(reason_of(what.what()), text_place(text_, position == 0 ? 0 : position - 1));
    return false;
  }

  Error take_error() { return error_.value_or(invalid_argument("not a JSON document")); }
  Json take_root() { return std::move(root_); }

 private:
  struct Level {
    Json value;
  };

  static const std::string* repeated_key(const JsonObject& object) {
    if (object.size() < 2) return nullptr;
    std::vector<const std::string*> keys;
    keys.reserve(object.size());
    for (const JsonMember& member : object) keys.push_back(&member.first);
    std::sort(keys.begin(), keys.end(), [](const auto* a, const auto* b) { return *a < *b; });
    const auto found =
        std::adjacent_find(keys.begin(), keys.end(), [](const auto* a, const auto* b) { return *a == *b; });
    return found == keys.end() ? nullptr : *found;
  }

  /// Where the innermost open value hangs.
  std::string pointer() const {
    std::string out;
    for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
      const Json& parent = open_[i].value;
      if (parent.is_object())
        out += "/" + json_pointer_token(parent.as_object().back().first);
      else
        out += fmt::format("/{}", parent.as_array().size());
    }
    return out.empty() ? "the top level" : out;
  }

  bool put(Json value) {
    if (open_.empty())
      root_ = std::move(value);
    else if (open_.back().value.is_object())
      open_.back().value.as_object().back().second = std::move(value);
    else
      open_.back().value.as_array().push_back(std::move(value));
    return true;
  }
  bool open(Json value) {
    open_.push_back({std::move(value)});
    return true;
  }
  bool close() {
    Json done = std::move(open_.back().value);
    open_.pop_back();
    return put(std::move(done));
  }

  std::string_view text_;
  std::vector<Level> open_;
  Json root_;
  std::optional<Error> error_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    return invalid_argument(fmt::format("the JSON text has {} bytes, more than the {} allowed here",
                                        text.size(), limits.max_bytes));
  if (const std::size_t at = too_deep_at(text, limits.max_depth); at != std::string_view::npos)
    return invalid_argument(fmt::format("nested deeper than {} levels", limits.max_depth),
                            text_place(text, at));
  // The reader below takes a NUL byte for the end of its input and would ignore what follows.
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
    return invalid_argument("a NUL byte cannot stand in JSON text", text_place(text, at));
  Builder builder(text);
  try {
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return builder.take_error();
  } catch (const std::exception& e) {
    return invalid_argument(reason_of(e.what()));
  }
  return builder.take_root();
}

}  // namespace deepinfer
