#include "config/lexical.h"

#include <algorithm>
#include <string>

namespace sluice::config {
namespace {

constexpr std::string_view kBlanks = " \t";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool is_bare_key(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

bool is_structure(char c) {
  return is_bare_key(c) || std::string_view("+.:,=[]{} \t\r\n").find(c) != std::string_view::npos;
}

class Scanner {
 public:
  explicit Scanner(std::string_view text)
      : text_(text), at_(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0) {}

  std::optional<std::size_t> run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '"' || c == '\'') {
        if (starts_many_lines(text_.substr(at_))) return at_;
        skip_string(c);
      } else if (!is_structure(c)) {
        return at_;
      } else if (c == '[' && open_.empty() && at_line_start()) {
        enter_head();
        if (at_ < text_.size() && !starts_key(text_[at_])) return at_;
      } else if (!follow(c)) {
        return at_;
      } else {
        ++at_;
      }
    }
    return std::nullopt;
  }

 private:
  // Keeps track of the open brackets: one at the start of a line within an array is no table head. False for a closing
  // bracket that does not fit.
  bool follow(char c) {
    if (c == '[' || c == '{') open_ += c;
    if (c != ']' && c != '}') return true;
    if (open_.empty() || open_.back() != (c == ']' ? '[' : '{')) return false;
    open_.pop_back();
    return true;
  }

  [[nodiscard]] bool at_line_start() const {
    const auto before = text_.substr(0, at_).find_last_not_of(kBlanks);
    return before == std::string_view::npos || text_[before] == '\n' || text_[before] == kByteOrderMark.back();
  }

  void enter_head() {
    const std::size_t brackets = text_.substr(at_).starts_with("[[") ? 2 : 1;
    open_.append(brackets, '[');
    at_ = std::min(text_.find_first_not_of(kBlanks, at_ + brackets), text_.size());
  }

  // What the library is ready for: a key, or the end of an empty head.
  static bool starts_key(char c) { return is_bare_key(c) || c == '"' || c == '\'' || c == ']'; }

  // Past the string; one that is not closed on its line is for the library to report.
  void skip_string(char quote) {
    for (++at_; at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n'; ++at_) {
      if (quote == '"' && text_[at_] == '\\') ++at_;
    }
    at_ = std::min(at_ + 1, text_.size());
  }

  std::string_view text_;
  std::size_t at_;
  std::string open_;  // brackets
};

}  // namespace

bool starts_many_lines(std::string_view text) { return text.starts_with("\"\"\"") || text.starts_with("'''"); }

std::optional<std::size_t> misplaced_character(std::string_view text) { return Scanner(text).run(); }

}  // namespace sluice::config
