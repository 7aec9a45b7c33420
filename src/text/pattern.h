// pattern: the regular expressions of tokenizer.json, which are Oniguruma's (Ruby's syntax), matched by PCRE2. Accepts
// what means the same in both: literals, groups, classes, general categories, look-around, quantifiers.
// Threads: any, each with its own Scratch. Errors: ConfigError for a pattern that is damaged or not supported;
// find_all() throws DataError if PCRE2 reaches its limits in a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace sluice::text {

class Pattern {
 public:
  // pattern: valid UTF-8. where: location in the file, for messages.
  static Pattern regex(std::string_view pattern, const std::string& where);
  static Pattern literal(std::string_view text);  // requires: the text is not empty

  struct Span {
    std::size_t begin, end;  // bytes
  };
  struct Scratch {
    std::string subject;
    std::vector<Span> matches;
    std::shared_ptr<pcre2_real_match_data_8> match;
  };
  // Calls `found(begin, end)` for each match, from left to right; matches do not overlap. There is no empty match at
  // the end of the match before it. Requires: valid UTF-8.
  template <typename Found>
  void for_each(std::string_view text, Scratch& scratch, Found&& found) const {
    find_all(text, scratch);
    for (const Span& span : scratch.matches) found(span.begin, span.end);
  }
  void find_all(std::string_view text, Scratch& scratch) const;

 private:
  Pattern() = default;

  std::string literal_;
  std::shared_ptr<pcre2_real_code_8> code_;
  bool matches_empty_ = false;
  bool substitutes_ = false;  // whether a text needs code points that PCRE2 knows
};

}  // namespace sluice::text
