#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace sluice::text {
namespace {

// Checks that a pattern has the same meaning in Ruby's syntax and in PCRE2, and rewrites the few escapes that differ.
class Translation {
 public:
  Translation(std::string_view pattern, const std::string& where) : rest_(pattern), whole_(pattern), where_(where) {}

  std::string run() {
    for (bool begins_branch = true; !rest_.empty(); begins_branch = begins_next_) {
      begins_next_ = false;
      const std::string_view from = rest_;
      const char next = rest_.front();
      if (next == '\\') {
        if (const auto point = escape()) literal(*point, from);
      } else if (next == '[') {
        character_class();
      } else if (next == '(') {
        open_group(begins_branch);
      } else if (next == '{') {
        interval();
      } else if (next == ')') {
        if (!outer_ignores_case_.empty()) {
          ignores_case_ = outer_ignores_case_.back();
          outer_ignores_case_.pop_back();
        }
        take(1);
      } else if (std::string_view(".^$|*+?").find(next) != std::string_view::npos) {
        begins_next_ = next == '|';
        forget_literal();
        take(1);
      } else {
        literal(take_point(), from);
      }
    }
    if (uses_tables_) check_ranges();
    return std::move(result_);
  }

  // Whether the pattern asks for properties of characters, so that texts need as_pcre2_sees_it().
  [[nodiscard]] bool uses_tables() const { return uses_tables_; }

 private:
  struct Range {
    char32_t first, last;
    std::string_view part;
  };

  [[noreturn]] void reject(std::string_view part) const {
    throw ConfigError(where_, ": the pattern \"", printable(whole_), "\" has \"", printable(part),
                      "\", which is not supported");
  }

  void take(std::size_t bytes) { replace(bytes, rest_.substr(0, bytes)); }
  void replace(std::size_t bytes, std::string_view by) {
    result_.append(by);
    rest_.remove_prefix(bytes);
  }
  char32_t take_point() {
    const char* at = rest_.data();
    const char32_t point = next_point(at);
    take(static_cast<std::size_t>(at - rest_.data()));
    return point;
  }

  void forget_literal() { last_literal_ = '\0'; }
  void use_tables() {
    uses_tables_ = true;
    forget_literal();
  }

  // as_pcre2_sees_it() changes code points of the text, but not of the pattern.
  void check_ranges() const {
    for (const Range& range : ranges_) {
      if (!keeps_range_in_pcre2(range.first, range.last)) reject(range.part);
    }
  }

  void add_range(char32_t first, char32_t last, std::string_view from) {
    ranges_.push_back({first, last, from.substr(0, from.size() - rest_.size())});
    if (ignores_case_ && last >= 0x80) reject(concat("(?i) with ", ranges_.back().part));
  }

  // Without case, Oniguruma takes some pairs of letters for one letter, such as "ss" for U+00DF.
  void literal(char32_t point, std::string_view from) {
    add_range(point, point, from);
    const char letter = ignores_case_ ? static_cast<char>(std::tolower(static_cast<int>(point))) : '\0';
    const std::string pair{last_literal_, letter};
    for (const std::string_view joined : {"ff", "fi", "fl", "ss", "st"}) {
      if (pair == joined) reject(concat("(?i) with ", joined));
    }
    last_literal_ = letter;
  }

  // Returns the character that the escape stands for, if it is one.
  std::optional<char32_t> escape() {
    if (rest_.size() < 2) reject("\\ at its end");
    const char kind = rest_[1];
    if (kind == 'p' || kind == 'P') return category(), std::nullopt;
    if (kind == 'v') return replace(2, "\\x0b"), U'\v';  // a class of characters in PCRE2
    if (kind == 'u') return code_point();
    if (std::string_view("sSdD").find(kind) != std::string_view::npos) {
      use_tables();
      return take(2), std::nullopt;
    }
    constexpr std::string_view kControls = "r\rn\nt\tf\f";
    const bool is_word = std::isalnum(static_cast<unsigned char>(kind)) != 0;
    const std::size_t control = is_word ? kControls.find(kind) : 0;
    if (control == std::string_view::npos) reject(rest_.substr(0, 2));
    take(1);
    const char32_t point = take_point();
    return is_word ? static_cast<char32_t>(kControls[control + 1]) : point;
  }

  char32_t code_point() {
    const std::string_view digits = rest_.substr(2, 4);
    std::uint32_t point = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), point, 16);
    if (digits.size() < 4 || error != std::errc{} || end != digits.data() + digits.size()) reject("\\u");
    replace(6, concat("\\x{", digits, "}"));
    return point;
  }

  // General categories only: the exceptions of unicode_exceptions.h are about these.
  void category() {
    const std::size_t end = rest_.find('}');
    if (rest_.size() < 3 || rest_[2] != '{' || end == std::string_view::npos) reject(rest_.substr(0, 2));
    std::string_view name = rest_.substr(3, end - 3);
    if (name.starts_with('^')) name.remove_prefix(1);
    constexpr std::string_view kNames =
        " L Lu Ll Lt Lm Lo M Mn Me Mc N Nd Nl No Z Zs Zl Zp P Pd Ps Pe Pc Po Pi Pf S Sm Sc Sk So C Cc Cf ";
    if (name.empty() || kNames.find(concat(" ", name, " ")) == std::string_view::npos) {
      reject(rest_.substr(0, end + 1));
    }
    use_tables();
    take(end + 1);
  }

  std::optional<char32_t> class_item() {
    if (rest_.empty()) reject("[ without ]");
    if (rest_.starts_with('[') || rest_.starts_with("&&")) reject(rest_.substr(0, 2));
    // Without case, Oniguruma also adds the other cases of a category's letters.
    if (ignores_case_ && (rest_.starts_with("\\p") || rest_.starts_with("\\P"))) reject("\\p in a class after (?i");
    return rest_.starts_with('\\') ? escape() : take_point();
  }

  // Returns the only character of the next item or range.
  std::optional<char32_t> class_member() {
    const std::string_view from = rest_;
    const auto first = class_item();
    auto last = first;
    if (first && rest_.starts_with('-') && !rest_.starts_with("-]")) {
      take(1);
      last = class_item();
      if (!last) last = first;
    }
    if (first) add_range(*first, *last, from);
    return first == last ? first : std::nullopt;
  }

  void character_class() {
    const std::string_view whole_class = rest_;
    const bool is_negated = rest_.starts_with("[^");
    take(is_negated ? 2 : 1);
    if (rest_.starts_with(']')) reject("[]");
    std::optional<char32_t> only;  // the character of a class that has no other one
    for (int items = 0; !rest_.starts_with(']'); ++items) {
      const auto member = class_member();
      only = items == 0 && !is_negated ? member : std::nullopt;
    }
    take(1);
    only ? literal(*only, whole_class) : forget_literal();
  }

  // In the middle of a branch, Ruby's (?i) takes in the branches after it: a(?i)b|c is a(?i:b|c).
  void open_group(bool begins_branch) {
    constexpr std::array<std::string_view, 9> kGroups = {"(?:", "(?=",  "(?!",  "(?<=", "(?<!",
                                                         "(?>", "(?i:", "(?i)", "("};
    const auto* kind =
        std::find_if(kGroups.begin(), kGroups.end(), [&](std::string_view group) { return rest_.starts_with(group); });
    if (*kind == "(" && (rest_.starts_with("(?") || rest_.starts_with("(*"))) reject(rest_.substr(0, 3));
    if (*kind == "(?i)" && !begins_branch) reject("(?i) that is not at the start of a group or a branch");
    if (*kind != "(?i)") outer_ignores_case_.push_back(ignores_case_);
    ignores_case_ |= kind->starts_with("(?i");
    begins_next_ = true;
    take(kind->size());
  }

  void interval() {
    const std::size_t end = rest_.find('}');
    if (end == std::string_view::npos || end == 1 || rest_[1] == ',' ||
        rest_.substr(1, end - 1).find_first_not_of("0123456789,") != std::string_view::npos) {
      reject("{");
    }
    if (ignores_case_ && (last_literal_ == 'f' || last_literal_ == 's')) reject("(?i) with a repeated f or s");
    take(end + 1);
    if (rest_.starts_with('+') || rest_.starts_with('?')) reject(concat("}", rest_.substr(0, 1)));
  }

  std::string_view rest_;
  std::string_view whole_;
  const std::string& where_;
  std::string result_;
  std::vector<Range> ranges_;  // literals and ranges of classes
  std::vector<bool> outer_ignores_case_;
  bool ignores_case_ = false;
  bool uses_tables_ = false;
  bool begins_next_ = false;  // whether a branch begins with the next item
  char last_literal_ = '\0';  // in lower case, after (?i; '\0': no literal is before the next item
};

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> why{};
  pcre2_get_error_message(error, why.data(), why.size());
  return reinterpret_cast<const char*>(why.data());
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

void find_literal(std::string_view text, std::string_view literal, std::vector<Pattern::Span>& found) {
  for (std::size_t at = 0; (at = text.find(literal, at)) != std::string_view::npos;) {
    found.push_back({at, at + literal.size()});
    at += literal.size();
  }
}

// Replaces code points whose category differs between Oniguruma and PCRE2 by one that has Oniguruma's category in both.
std::string_view as_pcre2_sees_it(std::string_view text, std::string& subject) {
  if (is_ascii(text)) return text;
  subject.resize(text.size());
  char* out = subject.data();
  for (const char* at = text.data(); at != text.data() + text.size();) {
    out = write_point(like_in_pcre2(next_point(at)), out);
  }
  return subject;
}

// PCRE2's own stack for compiled patterns has 32 KiB; long words need more.
pcre2_match_context* match_context() {
  struct Owner {
    pcre2_match_context* context = pcre2_match_context_create(nullptr);
    pcre2_jit_stack* stack = pcre2_jit_stack_create(std::size_t{32} << 10, std::size_t{64} << 20, nullptr);
    Owner() { pcre2_jit_stack_assign(context, nullptr, stack); }
    ~Owner() {
      pcre2_match_context_free(context);
      pcre2_jit_stack_free(stack);
    }
  };
  thread_local Owner owner;
  return owner.context;
}

bool match(const pcre2_code* code, std::string_view text, std::size_t start, pcre2_match_data* data) {
  const int found = pcre2_match(code, units(text), text.size(), start, PCRE2_NO_UTF_CHECK, data, match_context());
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found >= 0) return true;
  throw DataError("a pattern of the tokenizer cannot be matched in a text of ", text.size(),
                  " bytes: ", message_of(found), "; split the text into shorter parts");
}

}  // namespace

Pattern Pattern::regex(std::string_view pattern, const std::string& where) {
  Translation translation(pattern, where);
  const std::string translated = translation.run();
  int error = 0;
  std::size_t at = 0;
  pcre2_code* code = pcre2_compile(units(translated), translated.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                                   &error, &at, nullptr);
  if (code == nullptr) {
    throw ConfigError(where, ": the pattern \"", printable(pattern), "\" is damaged: ", message_of(error));
  }
  Pattern result;
  result.code_ = std::shared_ptr<pcre2_code>(code, pcre2_code_free);
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  result.matches_empty_ = matches_empty != 0;
  result.substitutes_ = translation.uses_tables();
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it, pcre2_match() interprets
  return result;
}

Pattern Pattern::literal(std::string_view text) {
  Pattern result;
  result.literal_ = text;
  return result;
}

void Pattern::find_all(std::string_view text, Scratch& scratch) const {
  scratch.matches.clear();
  if (code_ == nullptr) return find_literal(text, literal_, scratch.matches);
  if (text.empty()) return;
  if (substitutes_) text = as_pcre2_sees_it(text, scratch.subject);
  if (scratch.match == nullptr) scratch.match.reset(pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const std::size_t* span = pcre2_get_ovector_pointer(scratch.match.get());
  for (std::size_t start = 0; start < text.size() + (matches_empty_ ? 1 : 0);) {
    if (!match(code_.get(), text, start, scratch.match.get())) return;
    if (span[0] == span[1] && !scratch.matches.empty() && span[1] == scratch.matches.back().end) {
      start += start < text.size() ? character_bytes(text.substr(start)) : 1;  // `tokenizers` skips these
      continue;
    }
    scratch.matches.push_back({span[0], span[1]});
    start = span[1];
  }
}

}  // namespace sluice::text
