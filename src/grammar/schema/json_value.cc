#include "grammar/schema/json_value.h"

#include <nlohmann/json.hpp>
#include <unordered_map>

namespace deepinfer::schema {
namespace {

// nlohmann's parser calls these without recursion; the stack here is what bounds the depth.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TreeBuilder(const TreeLimits& limits) : limits_(limits) {}

  JsonValue take() { return std::move(root_); }
  std::string& failure() { return failure_; }

  bool null() override { return add({}); }
  bool boolean(bool value) override {
    JsonValue v;
    v.kind = JsonValue::Kind::kBool;
    v.boolean = value;
    return add(std::move(v));
  }
  bool number_integer(number_integer_t value) override { return add_number(decimal_from_int(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    const auto parsed = parse_decimal(std::to_string(value));
    return add_number(*parsed);
  }
  bool number_float(number_float_t, const string_t& text) override {
    const auto parsed = parse_decimal(text);
    if (!parsed) return fail("a number has more than 2000 digits or an exponent beyond 2000");
    return add_number(*parsed);
  }
  bool string(string_t& value) override {
    JsonValue v;
    v.kind = JsonValue::Kind::kString;
    v.text = std::move(value);
    return add(std::move(v));
  }
  bool binary(binary_t&) override { return fail("binary values are no JSON"); }
  bool start_object(std::size_t) override { return open(JsonValue::Kind::kObject); }
  bool start_array(std::size_t) override { return open(JsonValue::Kind::kArray); }
  bool key(string_t& value) override {
    stack_.back().key = std::move(value);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    // A failure of our own stops the parser without coming here; out_of_range means an overflowing number.
    failure_ = "not valid JSON at byte " + std::to_string(position) + ": " + e.what();
    return false;
  }

 private:
  struct Frame {
    JsonValue value;
    std::string key;
    std::unordered_map<std::string, std::size_t> index;  // key -> member, so a repeated key is found in O(1)
  };

  bool fail(std::string why) {
    failure_ = std::move(why);
    return false;
  }
  bool add_number(Decimal d) {
    JsonValue v;
    v.kind = JsonValue::Kind::kNumber;
    v.number = std::move(d);
    return add(std::move(v));
  }
  bool open(JsonValue::Kind kind) {
    if (static_cast<int>(stack_.size()) >= limits_.max_depth) {
      return fail("nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    }
    stack_.emplace_back();
    stack_.back().value.kind = kind;
    return true;
  }
  bool close() {
    JsonValue done = std::move(stack_.back().value);
    stack_.pop_back();
    return add(std::move(done));
  }
  bool add(JsonValue v) {
    if (stack_.empty()) {
      root_ = std::move(v);
      return true;
    }
    Frame& top = stack_.back();
    if (top.value.is_array()) {
      top.value.items.push_back(std::move(v));
      return true;
    }
    const auto [at, fresh] = top.index.try_emplace(top.key, top.value.members.size());
    if (fresh) {
      top.value.members.emplace_back(std::move(top.key), std::move(v));
    } else {
      top.value.members[at->second].second = std::move(v);
    }
    return true;
  }

  TreeLimits limits_;
  std::vector<Frame> stack_;
  JsonValue root_;
  std::string failure_;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name == key) return &value;
  }
  return nullptr;
}

bool json_equal(const JsonValue& a, const JsonValue& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case JsonValue::Kind::kNull:
      return true;
    case JsonValue::Kind::kBool:
      return a.boolean == b.boolean;
    case JsonValue::Kind::kNumber:
      return a.number == b.number;
    case JsonValue::Kind::kString:
      return a.text == b.text;
    case JsonValue::Kind::kArray:
      if (a.items.size() != b.items.size()) return false;
      for (std::size_t i = 0; i < a.items.size(); ++i) {
        if (!json_equal(a.items[i], b.items[i])) return false;
      }
      return true;
    case JsonValue::Kind::kObject:
      if (a.members.size() != b.members.size()) return false;
      for (const auto& [name, value] : a.members) {
        const JsonValue* other = b.find(name);
        if (other == nullptr || !json_equal(value, *other)) return false;
      }
      return true;
  }
  return false;
}

Result<JsonValue> parse_json_value(std::string_view text, const TreeLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return invalid_argument("the JSON text has " + std::to_string(text.size()) + " bytes; the limit is " +
                            std::to_string(limits.max_bytes));
  }
  TreeBuilder builder(limits);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    return invalid_argument(builder.failure().empty() ? "not valid JSON" : builder.failure());
  }
  return builder.take();
}

}  // namespace deepinfer::schema
