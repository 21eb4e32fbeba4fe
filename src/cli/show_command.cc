// deepinfer show: the questions and answers of a batch side by side.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batch/batch_line.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "io/jsonl.h"

namespace deepinfer::cli {
namespace {

constexpr std::size_t kMaxLineBytes = 64 << 20;
constexpr int kQuestionColumns = 46;

struct ShowOptions {
  std::string input, output;
  std::int64_t limit = 100;
};

struct Cell {
  char32_t code_point;
  std::string_view bytes;
};

// The character at the start of `text`, which holds UTF-8 (JSON was parsed); a stray byte stands for itself.
Cell next_cell(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t size = std::min<std::size_t>(lead < 0x80   ? 1
                                                 : lead < 0xE0 ? 2
                                                 : lead < 0xF0 ? 3
                                                               : 4,
                                                 text.size());
  char32_t code_point = size == 1 ? lead : lead & (0xFF >> (size + 1));
  for (std::size_t i = 1; i < size; ++i)
    code_point = (code_point << 6) | (static_cast<unsigned char>(text[i]) & 0x3F);
  return {code_point, text.substr(0, size)};
}

// East Asian wide characters and emoji take two columns.
int columns_of(char32_t c) {
  const bool wide = (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
                    (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
                    (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) ||
                    (c >= 0x1F300 && c <= 0x1FAFF) || (c >= 0x20000 && c <= 0x3FFFD);
  return wide ? 2 : 1;
}

int text_columns(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    const Cell cell = next_cell(text);
    columns += columns_of(cell.code_point);
    text.remove_prefix(cell.bytes.size());
  }
  return columns;
}

// Lines of at most `width` columns, broken at spaces where there are any.
std::vector<std::string> wrap(std::string_view text, int width) {
  std::vector<std::string> lines(1);
  int used = 0;
  while (!text.empty()) {
    const Cell cell = next_cell(text);
    text.remove_prefix(cell.bytes.size());
    if (cell.code_point == '\n') {
      lines.emplace_back();
      used = 0;
      continue;
    }
    if (cell.code_point < 0x20) continue;  // no control sequences on the terminal
    const int columns = columns_of(cell.code_point);
    if (used + columns > width) {
      const std::size_t space = lines.back().rfind(' ');
      std::string rest;
      if (space != std::string::npos && cell.code_point != ' ') {
        rest = lines.back().substr(space + 1);
        lines.back().resize(space);
      }
      used = text_columns(rest);
      lines.push_back(std::move(rest));
      if (cell.code_point == ' ') continue;
    }
    lines.back() += cell.bytes;
    used += columns;
  }
  return lines;
}

std::string content_text(const Json& content) {
  if (content.is_string()) return content.as_string();
  std::string out;
  if (!content.is_array()) return out;
  for (const Json& part : content.as_array()) {
    const Json* text = part.find("text");
    out += text != nullptr && text->is_string() ? text->as_string() : "[picture]";
  }
  return out;
}

std::string question(const BatchLine& line) {
  if (!line.request.ok()) return "(broken line)";
  const Json& body = line.request.value().body;
  if (const Json* prompt = body.find("prompt"))
    return prompt->is_string() ? prompt->as_string() : to_json_text(*prompt);
  const Json* messages = body.find("messages");
  std::string out;
  if (messages == nullptr || !messages->is_array()) return out;
  for (const Json& message : messages->as_array()) {
    const Json* content = message.find("content");
    if (content == nullptr) continue;
    if (!out.empty()) out += "\n";
    out += content_text(*content);
  }
  return out;
}

std::string one_answer(const Json& choice) {
  if (const Json* text = choice.find("text"); text != nullptr && text->is_string()) return text->as_string();
  const Json* message = choice.find("message");
  if (message == nullptr) return {};
  std::string out;
  if (const Json* reasoning = message->find("reasoning_content");
      reasoning != nullptr && reasoning->is_string()) {
    out += "(thinking) " + reasoning->as_string() + "\n";
  }
  if (const Json* content = message->find("content"); content != nullptr) out += content_text(*content);
  if (const Json* calls = message->find("tool_calls"); calls != nullptr && calls->is_array()) {
    for (const Json& call : calls->as_array()) {
      const Json* function = call.find("function");
      if (function == nullptr) continue;
      const Json* name = function->find("name");
      const Json* arguments = function->find("arguments");
      if (name == nullptr || arguments == nullptr || !name->is_string() || !arguments->is_string()) continue;
      out += fmt::format("(call) {} {}", name->as_string(), arguments->as_string());
    }
  }
  return out;
}

std::string answers(const Json& line) {
  if (const Json* error = line.find("error"); error != nullptr && error->is_object()) {
    const Json* message = error->find("message");
    return "(error) " +
           (message != nullptr && message->is_string() ? message->as_string() : to_json_text(*error));
  }
  const Json* response = line.find("response");
  const Json* body = response != nullptr ? response->find("body") : nullptr;
  const Json* choices = body != nullptr ? body->find("choices") : nullptr;
  std::string out;
  if (choices == nullptr || !choices->is_array()) return "(no answer)";
  for (const Json& choice : choices->as_array()) {
    if (!out.empty()) out += "\n--\n";
    out += one_answer(choice);
  }
  return out;
}

// "#12" for a line without a name: results of such lines are named by the number, errors carry it.
std::string key_of(const Json& line) {
  const Json* id = line.find("custom_id");
  if (id != nullptr && id->is_string()) return id->as_string();
  const Json* error = line.find("error");
  const Json* number = error != nullptr ? error->find("line") : nullptr;
  return number != nullptr && number->is_int() ? fmt::format("{}", number->as_int()) : "";
}

struct Row {
  std::string key, question, answer = "(no result yet)";
};

Result<std::vector<Row>> read_questions(const ShowOptions& options) {
  DI_ASSIGN(JsonlReader reader, JsonlReader::open(options.input, kMaxLineBytes));
  std::vector<Row> rows;
  while (static_cast<std::int64_t>(rows.size()) < options.limit) {
    DI_ASSIGN(const std::optional<JsonlLine> line, reader.next());
    if (!line) break;
    if (line->text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const BatchLine parsed = parse_batch_line(line->text, false);
    rows.push_back({parsed.id.value_or(fmt::format("{}", line->number)), question(parsed)});
  }
  return rows;
}

Status read_answers(const ShowOptions& options, std::vector<Row>& rows) {
  std::multimap<std::string, Row*> by_key;
  for (Row& row : rows) by_key.emplace(row.key, &row);
  DI_ASSIGN(JsonlReader reader, JsonlReader::open(options.output, kMaxLineBytes));
  while (true) {
    DI_ASSIGN(const std::optional<JsonlLine> line, reader.next());
    if (!line) return {};
    Result<Json> parsed = parse_json(line->text);
    if (!parsed.ok()) return parsed.error().at(fmt::format("{}:{}", options.output, line->number));
    // Lines that share a name (a duplicate and its error) take their results in turn.
    const auto it = by_key.find(key_of(*parsed));
    if (it == by_key.end()) continue;
    it->second->answer = answers(*parsed);
    by_key.erase(it);
  }
}

int terminal_columns() {
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 60) return size.ws_col;
  return 120;
}

void print(const std::vector<Row>& rows) {
  const int answer_columns = terminal_columns() - kQuestionColumns - 3;
  for (const Row& row : rows) {
    const std::vector<std::string> left = wrap(row.question, kQuestionColumns);
    const std::vector<std::string> right = wrap(row.answer, answer_columns);
    for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
      const std::string a = i < left.size() ? left[i] : "";
      const std::string b = i < right.size() ? right[i] : "";
      const std::string padding(static_cast<std::size_t>(std::max(0, kQuestionColumns - text_columns(a))),
                                ' ');
      std::printf("%s%s %s %s\n", a.c_str(), padding.c_str(), "│", b.c_str());
    }
    std::printf("%s\n", std::string(static_cast<std::size_t>(kQuestionColumns) + 3, '-').c_str());
  }
}

int run(const ShowOptions& options) {
  Result<std::vector<Row>> rows = read_questions(options);
  if (!rows.ok()) return report(rows.error());
  if (const Status status = read_answers(options, *rows); !status.ok()) return report(status.error());
  print(*rows);
  return kExitOk;
}

}  // namespace

void register_show(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command = app.add_subcommand("show", "Print the questions and answers of a batch side by side");
  command->add_option("input", options->input, "The requests")->required()->type_name("FILE");
  command->add_option("output", options->output, "The results")->required()->type_name("FILE");
  command->add_option("--limit", options->limit, "Print that many requests at most (100)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace deepinfer::cli
