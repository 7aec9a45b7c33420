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
        skip_string(c);
      } else if (!is_structure(c)) {
        return at_;
      } else if (c == '[' && depth_ == 0 && at_line_start()) {
        at_ = after_head_brackets();
        if (at_ < text_.size() && !starts_key(text_[at_])) return at_;
      } else {
        follow(c);
        ++at_;
      }
    }
    return std::nullopt;
  }

 private:
  // Arrays and inline tables span lines: a bracket at the start of a line within one is no table head.
  void follow(char c) {
    if (c == '[' || c == '{') ++depth_;
    if ((c == ']' || c == '}') && depth_ > 0) --depth_;
  }

  [[nodiscard]] bool at_line_start() const {
    const auto before = text_.substr(0, at_).find_last_not_of(kBlanks);
    return before == std::string_view::npos || text_[before] == '\n' || text_[before] == kByteOrderMark.back();
  }

  [[nodiscard]] std::size_t after_head_brackets() {
    std::size_t next = at_ + 1;
    if (next < text_.size() && text_[next] == '[') ++next;
    return std::min(text_.find_first_not_of(kBlanks, next), text_.size());
  }

  // What the library is ready for: a key, or the end of an empty head.
  static bool starts_key(char c) { return is_bare_key(c) || c == '"' || c == '\'' || c == ']'; }

  void skip_string(char quote) {
    const std::string triple(3, quote);
    const bool many_lines = text_.substr(at_).starts_with(triple);
    const std::string_view end = many_lines ? std::string_view(triple) : std::string_view(triple).substr(0, 1);
    at_ += end.size();
    while (at_ < text_.size() && !text_.substr(at_).starts_with(end)) {
      if (text_[at_] == '\n' && !many_lines) return;  // not closed: the library reports it
      at_ += quote == '"' && text_[at_] == '\\' ? 2 : 1;
    }
    at_ = std::min(at_ + end.size(), text_.size());
  }

  std::string_view text_;
  std::size_t at_;
  int depth_ = 0;
};

}  // namespace

std::optional<std::size_t> misplaced_character(std::string_view text) { return Scanner(text).run(); }

}  // namespace sluice::config
