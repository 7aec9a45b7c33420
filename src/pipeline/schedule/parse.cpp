#include <algorithm>
#include <cctype>
#include <charconv>

#include "core/concat.h"
#include "core/error.h"
#include "pipeline/schedule/draw.h"

namespace sluice::pipeline {
namespace {

constexpr std::string_view kSeparators = " \t\r,";

struct Token {
  std::string_view text;
  std::size_t line = 1;
  std::size_t column = 1;
};

// The text as it may stand in a one-line message.
std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 32;
  std::string safe(text.substr(0, kLongest));
  std::ranges::replace_if(
      safe, [](unsigned char c) { return std::isprint(c) == 0; }, '?');
  return text.size() > kLongest ? safe + "..." : safe;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view source) : rest_(text), source_(source) {}

  Schedule run() {
    while (!rest_.empty()) read_line();
    if (schedule_.devices.empty())
      throw ConfigError(concat(source_, ":", line_, ":1: no devices; write one line of actions per device"));
    if (!has_header_) {
      schedule_.stages = highest_stage_ + 1;
      schedule_.micro_batches = highest_micro_batch_ + 1;
    }
    return std::move(schedule_);
  }

 private:
  void read_line() {
    const auto end = rest_.find('\n');
    const auto tokens = split(rest_.substr(0, rest_.find_first_of("#\n")));
    if (!tokens.empty()) {
      if (tokens[0].text.find('=') != std::string_view::npos) {
        read_header(tokens);
      } else {
        read_device(tokens);
      }
    }
    rest_ = end == std::string_view::npos ? std::string_view{} : rest_.substr(end + 1);
    ++line_;
  }

  [[nodiscard]] std::vector<Token> split(std::string_view line) const {
    std::vector<Token> tokens;
    for (std::size_t begin = 0; (begin = line.find_first_not_of(kSeparators, begin)) != std::string_view::npos;) {
      const auto end = std::min(line.find_first_of(kSeparators, begin), line.size());
      tokens.push_back({line.substr(begin, end - begin), line_, begin + 1});
      begin = end;
    }
    return tokens;
  }

  void read_header(const std::vector<Token>& tokens) {
    if (has_header_ || !schedule_.devices.empty()) fail(tokens[0], "the header belongs once, before the first device");
    if (tokens.size() != 3) fail(tokens[0], "expected 'schedule=NAME stages=P micro_batches=M'");
    const Token name = value_of(tokens[0], "schedule=");
    if (!is_schedule_name(name.text)) fail(name, concat("expected a name of one word, found '", shown(name.text), "'"));
    schedule_.name = name.text;
    schedule_.stages = read_number(value_of(tokens[1], "stages="), kMaxSize);
    schedule_.micro_batches = read_number(value_of(tokens[2], "micro_batches="), kMaxSize);
    has_header_ = true;
  }

  void read_device(const std::vector<Token>& tokens) {
    auto& actions = schedule_.devices.emplace_back();
    if (tokens.size() == 1 && tokens[0].text == "-") return;
    actions.reserve(tokens.size());
    for (const auto& token : tokens) actions.push_back(read_action(token));
  }

  Action read_action(const Token& token) {
    const auto op_at = token.text.find_first_not_of("0123456789");
    if (op_at == 0 || op_at == std::string_view::npos || op_at + 1 == token.text.size()) fail_action(token);
    Action action;
    switch (token.text[op_at]) {
      case 'F': action.op = Op::kForward; break;
      case 'B': action.op = Op::kBackward; break;
      default: fail_action(token);
    }
    const int stage = read_number({token.text.substr(0, op_at), token.line, token.column}, kMaxSize - 1);
    const int micro_batch =
        read_number({token.text.substr(op_at + 1), token.line, token.column + op_at + 1}, kMaxSize - 1);
    highest_stage_ = std::max(highest_stage_, stage);
    highest_micro_batch_ = std::max(highest_micro_batch_, micro_batch);
    action.stage = static_cast<StageId>(stage);
    action.micro_batch = static_cast<MicroBatchId>(micro_batch);
    return action;
  }

  [[nodiscard]] Token value_of(const Token& token, std::string_view prefix) const {
    if (!token.text.starts_with(prefix))
      fail(token, concat("expected '", prefix, "...', found '", shown(token.text), "'"));
    return {token.text.substr(prefix.size()), token.line, token.column + prefix.size()};
  }

  [[nodiscard]] int read_number(const Token& token, int highest) const {
    int value = 0;
    const char* begin = token.text.data();
    const char* end = begin + token.text.size();
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error != std::errc{} || stop != end || value < 0 || value > highest) {
      fail(token, concat("expected a number from 0 to ", highest, ", found '", shown(token.text), "'"));
    }
    return value;
  }

  [[noreturn]] void fail_action(const Token& token) const {
    fail(token, concat("expected an action such as 0F2 (stage, F or B, micro-batch), found '", shown(token.text), "'"));
  }

  [[noreturn]] void fail(const Token& token, std::string_view what) const {
    throw ConfigError(concat(source_, ":", token.line, ":", token.column, ": ", what));
  }

  std::string_view rest_;
  std::string_view source_;
  std::size_t line_ = 1;
  bool has_header_ = false;
  int highest_stage_ = -1;
  int highest_micro_batch_ = -1;
  Schedule schedule_{.name = "custom", .stages = 0, .micro_batches = 0, .devices = {}};
};

}  // namespace

Schedule parse_schedule(std::string_view text, std::string_view source) { return Parser(text, source).run(); }

bool is_schedule_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.');
  });
}

}  // namespace sluice::pipeline
