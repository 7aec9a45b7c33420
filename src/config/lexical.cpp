#include "config/lexical.h"

#include <algorithm>
#include <array>

#include "config/value.h"
#include "core/concat.h"
#include "core/text.h"

namespace sluice::config {
namespace {

constexpr std::string_view kBlanks = " \t";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_bare_key(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '-';
}

bool is_bare(char c) { return is_bare_key(c) || c == '+' || c == '.' || c == ':'; }

bool is_exponent(char c) { return c == 'e' || c == 'E'; }

// True if `token` may be a number. A sign is allowed first or after an exponent's e, which excludes dates.
bool may_be_number(std::string_view token) {
  if (token.empty() || !is_digit(token.front())) return false;
  for (std::size_t i = 1; i < token.size(); ++i) {
    const bool is_sign = token[i] == '+' || token[i] == '-';
    if (token[i] == ':' || (is_sign && !is_exponent(token[i - 1]))) return false;
  }
  return true;
}

bool is_plain_value(std::string_view token) {
  constexpr std::array<std::string_view, 2> kTruths{"true", "false"};
  constexpr std::array<std::string_view, 2> kNoNumbers{"inf", "nan"};
  if (std::ranges::find(kTruths, token) != kTruths.end()) return true;
  if (token.starts_with('+') || token.starts_with('-')) token.remove_prefix(1);
  if (std::ranges::find(kNoNumbers, token) != kNoNumbers.end()) return true;
  return may_be_number(token);
}

class Scanner {
 public:
  explicit Scanner(std::string_view text)
      : text_(text), at_(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0) {}

  std::optional<Complaint> run() {
    while (at_ < text_.size()) {
      if (auto what = step(); !what.empty()) return Complaint{at_, std::move(what)};
    }
    return std::nullopt;
  }

 private:
  static constexpr char kNewLine = '\n';
  static constexpr char kText = 'x';

  // Advances past the next token. Returns what is wrong with the token, whose position is then at_.
  std::string step() {
    const char c = text_[at_];
    if (kBlanks.find(c) != std::string_view::npos || c == '\r') {
      ++at_;
      return {};
    }
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
      return {};
    }
    if (c == '"' || c == '\'') return string(c);
    if (is_bare(c)) return bare();
    return mark(c);
  }

  std::string string(char quote) {
    if (text_.substr(at_).starts_with(std::string(3, quote))) {
      return R"(multi-line strings are not supported; write one line with \n)";
    }
    if (at_ > 0 && is_bare(text_[at_ - 1])) return "unexpected quote";
    // The TOML library reports a string that is not closed on its line.
    for (++at_; at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n'; ++at_) {
      if (quote == '"' && text_[at_] == '\\') ++at_;
    }
    at_ = std::min(at_ + 1, text_.size());
    last_ = kText;
    return {};
  }

  std::string bare() {
    const auto* const end = std::ranges::find_if_not(text_.substr(at_), is_bare);
    const std::string_view token(text_.data() + at_, static_cast<std::size_t>(end - (text_.data() + at_)));
    const bool is_value = is_at_value();
    if (is_value && !is_plain_value(token)) {
      return concat("'", one_line(token), "' is neither a number nor true or false; a string needs quotes");
    }
    at_ += token.size();
    last_ = kText;
    if (!is_value || at_ == text_.size() || std::string_view(" \t\r\n,]}#").find(text_[at_]) != std::string_view::npos)
      return {};
    return concat("expected the end of the value '", one_line(token), "'");
  }

  std::string mark(char c) {
    if (c == '[' && open_.empty() && last_ == kNewLine) return head();
    if (static_cast<unsigned char>(c) >= 0x80) return "unexpected character outside of ASCII";
    const bool is_known = std::string_view("[]{}=,\n").find(c) != std::string_view::npos;
    if (!is_known || !follow_brackets(c)) return concat("unexpected '", one_line({&c, 1}), "'");
    ++at_;
    if (c != '\n' || open_.empty()) last_ = c;
    return {};
  }

  bool follow_brackets(char c) {
    if (c == '[' || c == '{') open_ += c;
    if (c != ']' && c != '}') return true;
    if (open_.empty() || open_.back() != (c == ']' ? '[' : '{')) return false;
    open_.pop_back();
    return true;
  }

  // Skips "[" or "[[" and blanks, so that the library accepts a key or the end of an empty table head.
  std::string head() {
    const std::size_t brackets = text_.substr(at_).starts_with("[[") ? 2 : 1;
    open_.append(brackets, '[');
    at_ = std::min(text_.find_first_not_of(kBlanks, at_ + brackets), text_.size());
    last_ = kText;
    if (at_ == text_.size()) return {};
    const char c = text_[at_];
    const bool starts_key = is_bare_key(c) || c == '"' || c == '\'' || c == ']';
    return starts_key ? "" : "expected the name of a table";
  }

  [[nodiscard]] bool is_at_value() const {
    const bool in_array = !open_.empty() && open_.back() == '[';
    return last_ == '=' || (in_array && (last_ == '[' || last_ == ','));
  }

  std::string_view text_;
  std::size_t at_;
  std::string open_;
  char last_ = kNewLine;  // last token except blanks and comments; within brackets also except line ends
};

}  // namespace

std::optional<Complaint> look_over(std::string_view text) { return Scanner(text).run(); }

}  // namespace sluice::config
