#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/draw.h"

namespace sluice::pipeline {
namespace {

constexpr std::string_view kSeparators = " \t\r,";
constexpr std::string_view kDigits = "0123456789";

struct NamedOp {
  std::string_view name;
  std::optional<Op> op;  // nullopt: skipped
  bool has_micro_batch = true;
};
constexpr std::array kOps{
    NamedOp{"F", Op::kForward},
    NamedOp{"B", Op::kBackward},
    NamedOp{"I", Op::kInputGradient},
    NamedOp{"W", Op::kWeightGradient},
    NamedOp{"REDUCE_GRAD", Op::kReduceGradient, false},
    NamedOp{"SEND_F", {}},
    NamedOp{"RECV_F", {}},
    NamedOp{"SEND_B", {}},
    NamedOp{"RECV_B", {}},
    NamedOp{"UNSHARD", {}, false},
    NamedOp{"RESHARD", {}, false},
};

struct Token {
  std::string_view text;
  std::size_t line = 1;
  std::size_t column = 1;
};

// Makes text safe for a one-line message.
std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 32;
  std::string safe(text.substr(0, kLongest));
  std::ranges::replace_if(
      safe, [](unsigned char c) { return std::isprint(c) == 0; }, '?');
  return text.size() > kLongest ? safe + "..." : safe;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view source) : rest_(text), source_(source) {
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  }

  WrittenSchedule run() {
    while (!rest_.empty()) read_line();
    if (schedule_.devices.empty())
      throw ConfigError(source_, ":", line_, ":1: no devices; write one line of actions per device");
    if (!has_header_) {
      schedule_.stages = highest_stage_ + 1;
      schedule_.micro_batches = highest_micro_batch_ + 1;
    }
    return {std::move(schedule_), header_line_, std::move(device_lines_)};
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
    if (tokens.size() != 3) fail(tokens[0], "expected 'schedule=NAME stages=S micro_batches=M'");
    const Token name = value_of(tokens[0], "schedule=");
    if (!is_schedule_name(name.text)) fail(name, concat("expected a name of one word, found '", shown(name.text), "'"));
    schedule_.name = name.text;
    schedule_.stages = read_number(value_of(tokens[1], "stages="), kMaxSize);
    schedule_.micro_batches = read_number(value_of(tokens[2], "micro_batches="), kMaxSize);
    has_header_ = true;
    header_line_ = static_cast<int>(line_);
  }

  void read_device(const std::vector<Token>& tokens) {
    auto& actions = schedule_.devices.emplace_back();
    device_lines_.push_back(static_cast<int>(line_));
    if (tokens.size() == 1 && tokens[0].text == "-") return;
    actions.reserve(tokens.size());
    for (const auto& token : tokens) {
      if (token.text.front() == '(') {
        read_pair(token, actions);
      } else if (const auto action = read_action(token)) {
        actions.push_back(*action);
      }
    }
  }

  // "(0F3;3B1)" or "(0F3;3B1)OVERLAP_F_B".
  void read_pair(const Token& token, std::vector<Action>& actions) {
    const auto middle = token.text.find(';');
    const auto end = token.text.find(')');
    if (middle == std::string_view::npos || end == std::string_view::npos || end < middle) fail_pair(token);
    const std::string_view after = token.text.substr(end + 1);
    if (!after.empty() && after != "OVERLAP_F_B") fail_pair(token);
    const auto first = read_action(part_of(token, 1, middle));
    const auto second = read_action(part_of(token, middle + 1, end));
    if (!first || !second) fail_pair(token);
    actions.push_back(*first);
    actions.back().overlaps_next = true;
    actions.push_back(*second);
  }

  std::optional<Action> read_action(const Token& token) {
    const auto op_begin = std::min(token.text.find_first_not_of(kDigits), token.text.size());
    const auto op_end = std::min(token.text.find_first_of(kDigits, op_begin), token.text.size());
    const std::string_view word = token.text.substr(op_begin, op_end - op_begin);
    const auto op = std::ranges::find(kOps, word, &NamedOp::name);
    if (op_begin == 0 || op == kOps.end()) fail_action(token);
    Action action{.op = op->op.value_or(Op::kForward)};
    const int stage = read_number(part_of(token, 0, op_begin), kMaxSize - 1);
    int micro_batch = 0;
    if (op->has_micro_batch) {
      if (op_end == token.text.size()) fail_action(token);
      micro_batch = read_number(part_of(token, op_end, token.text.size()), kMaxSize - 1);
    } else if (op_end != token.text.size()) {
      fail_action(token);
    }
    if (!op->op) return std::nullopt;
    highest_stage_ = std::max(highest_stage_, stage);
    highest_micro_batch_ = std::max(highest_micro_batch_, micro_batch);
    action.stage = static_cast<StageId>(stage);
    action.micro_batch = static_cast<MicroBatchId>(micro_batch);
    return action;
  }

  [[nodiscard]] static Token part_of(const Token& token, std::size_t begin, std::size_t end) {
    return {token.text.substr(begin, end - begin), token.line, token.column + begin};
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
    fail(token,
         concat("expected an action such as 0F2 (stage; F, B, I or W; micro-batch), found '", shown(token.text), "'"));
  }

  [[noreturn]] void fail_pair(const Token& token) const {
    fail(token, concat("expected a pair such as (0F3;1B2), found '", shown(token.text), "'"));
  }

  [[noreturn]] void fail(const Token& token, std::string_view what) const {
    throw ConfigError(source_, ":", token.line, ":", token.column, ": ", what);
  }

  std::string_view rest_;
  std::string_view source_;
  std::size_t line_ = 1;
  bool has_header_ = false;
  int header_line_ = 1;
  std::vector<int> device_lines_;
  int highest_stage_ = -1;
  int highest_micro_batch_ = -1;
  Schedule schedule_{.name = "custom", .stages = 0, .micro_batches = 0, .devices = {}};
};

}  // namespace

Schedule parse_schedule(std::string_view text, std::string_view source) {
  return parse_written_schedule(text, source).schedule;
}

WrittenSchedule parse_written_schedule(std::string_view text, std::string_view source) {
  return Parser(text, source).run();
}

bool is_schedule_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.');
  });
}

}  // namespace sluice::pipeline
