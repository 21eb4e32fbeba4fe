// The formats of draft 2020-12 as patterns. Where a format is not regular, or needs tables that change with
// Unicode, the pattern takes a subset: whatever it accepts is valid, and what it leaves out is said here.
//   date, time, date-time   RFC 3339; a leap second only at 23:59:60 with offset zero
//   duration                RFC 3339 appendix A
//   email, idn-email        RFC 5321 mailbox; domains of idn-email as idn-hostname
//   hostname                RFC 1123; up to four labels, or eight of at most 30 characters; no label with
//   "--" in places 3-4 (so no A-labels) idn-hostname            labels of lower-case or uncased letters of
//   eleven left-to-right scripts, and ASCII digits; no
//                           combining or context-dependent characters; five labels of 11 characters
//   ipv4, ipv6              RFC 2673 section 3.2, RFC 4291 section 2.2
//   uri, iri (-reference)   RFC 3986, RFC 3987
//   uri-template            RFC 6570
//   uuid                    RFC 4122 text form
//   json-pointer            RFC 6901, and its relative form
//   regex                   ECMA-262 without back-references, look-around, {m,n} with two numbers and
//   character
//                           ranges other than a-z, A-Z, 0-9; groups nested up to 3 deep
#include <map>

#include "grammar/schema/string_algebra.h"

namespace deepinfer::schema {
namespace {

using std::string;

string any_of(const std::initializer_list<string>& choices) {
  string out = "(?:";
  for (const string& choice : choices) out += (out.size() > 3 ? "|" : "") + choice;
  return out + ")";
}
string group(const string& x) {
  return "(?:" + x + ")";
}

struct Patterns {
  std::map<string, FormatPattern> by_name;

  void add(const string& name, const string& whole, string also = {}, string never = {}) {
    by_name[name] = {"^" + group(whole) + "$", std::move(also), std::move(never)};
  }

  void add_times() {
    const string year = "[0-9]{4}";
    // Divisible by 4, and by 400 when by 100.
    const string leap =
        any_of({"[0-9]{2}(?:0[48]|[2468][048]|[13579][26])", "(?:[02468][048]|[13579][26])00"});
    const string date = any_of({year + "-(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
                                year + "-(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
                                year + "-02-(?:0[1-9]|1[0-9]|2[0-8])", leap + "-02-29"});
    const string fraction = "(?:\\.[0-9]+)?";
    const string offset = "(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
    const string time = any_of({"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]" + fraction + offset,
                                "23:59:60" + fraction + "(?:[zZ]|[+-]00:00)"});
    add("date", date);
    add("time", time);
    add("date-time", date + "[tT]" + time);
    const string n = "[0-9]+";
    const string day = n + "D", month = n + "M" + group(day) + "?", years = n + "Y" + group(month) + "?";
    const string second = n + "S", minute = n + "M" + group(second) + "?",
                 hour = n + "H" + group(minute) + "?";
    const string clock = "T" + any_of({hour, minute, second});
    add("duration", "P" + any_of({any_of({years, month, day}) + group(clock) + "?", clock, n + "W"}));
  }

  void add_hosts() {
    // Four labels of 63, 62, 62, 62 or eight of 30: always within 253, without a count over the whole name.
    const auto label_of = [](int most) {
      return "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0," + std::to_string(most - 2) + "}[a-zA-Z0-9])?";
    };
    const string label = label_of(63);
    const string host = any_of({label + group("\\." + label_of(62)) + "{0,3}",
                                label_of(30) + group("\\." + label_of(30)) + "{0,7}"});
    const string tagged = "(?:^|\\.)[^.]{2}--";
    add("hostname", host, {}, tagged);
    // Scripts written from left to right whose letters need no context. At most 11 characters a label, so
    // that its Punycode form stays below 64 octets whatever they are.
    string letters;
    for (const char* script : {"Latin", "Greek", "Cyrillic", "Armenian", "Georgian", "Han", "Hiragana",
                               "Katakana", "Hangul", "Devanagari", "Thai"}) {
      letters += string("\\p{Script=") + script + "}";
    }
    const string letter = "[" + letters + "0-9]";
    const string idn_label = letter + group("[" + letters + "0-9-]{0,9}" + letter) + "?";
    const string idn_host = idn_label + group("\\." + idn_label) + "{0,4}";
    const string unusual = "[^a-z0-9.\\p{Ll}\\p{Lo}-]|[\\u302E\\u302F\\u3031-\\u3035\\u303B]";
    add("idn-hostname", any_of({host, idn_host}), {}, any_of({tagged, unusual}));

    const string octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    ipv4 = octet + group("\\." + octet) + "{3}";
    add("ipv4", ipv4);
    const string h = "[0-9a-fA-F]{1,4}";
    const string last = any_of({h + ":" + h, ipv4});
    const auto upto = [&](int count) {
      return group("(?:" + h + ":){0," + std::to_string(count) + "}" + h) + "?";
    };
    ipv6 = any_of({"(?:" + h + ":){6}" + last, "::(?:" + h + ":){5}" + last,
                   upto(0) + "::(?:" + h + ":){4}" + last, upto(1) + "::(?:" + h + ":){3}" + last,
                   upto(2) + "::(?:" + h + ":){2}" + last, upto(3) + "::" + h + ":" + last,
                   upto(4) + "::" + last, upto(5) + "::" + h, upto(6) + "::"});
    add("ipv6", ipv6);

    // RFC 5321 gives the parts of a mailbox no lengths.
    const string part = "[a-zA-Z0-9]+(?:-+[a-zA-Z0-9]+)*";
    const string domain = part + group("\\." + part) + "*";
    const string atom = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
    const string quoted = "\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\"";
    const string literal = "\\[(?:" + ipv4 + "|[iI][pP][vV]6:" + ipv6 + ")\\]";
    const string local = any_of({atom + group("\\." + atom) + "*", quoted});
    add("email", local + "@" + any_of({domain, literal}));
    const string wide = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~\\x80-\\uFFFF\\u{10000}-\\u{10FFFF}-]+";
    const string wide_quoted = "\"(?:[ !#-\\[\\]-~\\x80-\\uFFFF]|\\\\[ -~])*\"";
    add("idn-email",
        any_of({wide + group("\\." + wide) + "*", wide_quoted}) + "@" + any_of({domain, idn_host, literal}));
  }

  void add_uris(const string& suffix, const string& wide, const string& wide_query) {
    const string hex = "%[0-9a-fA-F]{2}";
    const string plain = "a-zA-Z0-9._~" + wide, sub = "!$&'()*+,;=";
    const string pchar = any_of({"[" + plain + sub + ":@-]", hex});
    const string segment = pchar + "*", solid = pchar + "+";
    const string no_colon = any_of({"[" + plain + sub + "@-]", hex}) + "+";
    const string user = group(any_of({"[" + plain + sub + ":-]", hex}) + "*@") + "?";
    const string name = any_of({"[" + plain + sub + "-]", hex}) + "*";
    const string host =
        any_of({"\\[(?:" + ipv6 + "|[vV][0-9a-fA-F]+\\.[a-zA-Z0-9._~!$&'()*+,;=:-]+)\\]", name});
    const string authority = user + host + "(?::[0-9]*)?";
    const string slashes = group("/" + segment) + "*";
    const string absolute = "/" + group(solid + slashes) + "?";
    const string tail = group("\\?" + any_of({"[" + plain + sub + wide_query + ":@/?-]", hex}) + "*") + "?" +
                        group("#" + any_of({"[" + plain + sub + ":@/?-]", hex}) + "*") + "?";
    const string scheme = "[a-zA-Z][a-zA-Z0-9+.-]*:";
    const string full = scheme + any_of({"//" + authority + slashes, absolute, solid + slashes, ""}) + tail;
    const string relative = any_of({"//" + authority + slashes, absolute, no_colon + slashes, ""}) + tail;
    add(suffix, full);
    add(suffix + "-reference", any_of({full, relative}));
  }

  void add_rest() {
    const string hex = "%[0-9a-fA-F]{2}";
    const string varchar = any_of({"[a-zA-Z0-9_]", hex});
    const string variable = varchar + group("\\.?" + varchar) + "*";
    const string spec = variable + "(?::[1-9][0-9]{0,3}|\\*)?";
    const string expression = "\\{[+#./;?&=,!@|]?" + spec + group("," + spec) + "*\\}";
    const string literal =
        any_of({"[!#$&'()*+,\\-./"
                "0-9:;=?@A-Z\\[\\]_a-z~\\xA0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}]",
                hex});
    add("uri-template", any_of({literal, expression}) + "*");
    const string x = "[0-9a-fA-F]";
    add("uuid", x + "{8}-" + x + "{4}-" + x + "{4}-" + x + "{4}-" + x + "{12}");
    const string pointer = "(?:/(?:[^~/]|~[01])*)*";
    add("json-pointer", pointer);
    add("relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" + pointer + ")");

    const string escape = "\\\\[dDwWsSnrtfv0^$\\\\.*+?()\\[\\]{}|/]";
    const string member = any_of({"a-z", "A-Z", "0-9", "[^\\\\\\[\\]\\-\\x00-\\x1f]", escape});
    const string set = "\\[\\^?" + member + "*\\]";
    const string atom = any_of({"[^\\\\^$.*+?()\\[\\]{}|/\\x00-\\x1f]", "\\.", escape, set});
    const string quantifier = "(?:(?:[*+?]|\\{[0-9]{1,4},?\\})[?]?)?";
    string term = any_of({group(atom) + quantifier, "\\^", "\\$"});
    for (int depth = 0; depth < 3; ++depth) {
      const string inner = term + "*" + group("\\|" + term + "*") + "*";
      term = any_of({atom + quantifier, "\\^", "\\$", "\\((?:\\?:)?" + inner + "\\)" + quantifier});
    }
    add("regex", term + "*" + group("\\|" + term + "*") + "*");
  }

  Patterns() {
    add_times();
    add_hosts();
    add_uris("uri", "", "");
    add_uris("iri",
             "\\xA0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{30000}"
             "-\\u{3FFFD}",
             "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}");
    add_rest();
  }

  string ipv4, ipv6;
};

}  // namespace

const FormatPattern* format_pattern(const std::string& name) {
  static const Patterns patterns;
  const auto found = patterns.by_name.find(name);
  return found == patterns.by_name.end() ? nullptr : &found->second;
}

}  // namespace deepinfer::schema
