#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/concat.h"
#include "core/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace sluice::text {
namespace {

// Checks that a pattern has the same meaning in Ruby's syntax and in PCRE2, and rewrites the few escapes that differ.
class Translation {
 public:
  Translation(std::string_view pattern, const std::string& where) : rest_(pattern), whole_(pattern), where_(where) {}

  std::string run() {
    while (!rest_.empty()) {
      if (rest_.starts_with('\\')) {
        escape();
      } else if (rest_.starts_with('[')) {
        character_class();
      } else if (rest_.starts_with("(?")) {
        group();
      } else if (rest_.starts_with('{')) {
        interval();
      } else {
        take(1);
      }
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void reject(std::string_view part) const {
    throw ConfigError(where_, ": the pattern \"", whole_, "\" has \"", part, "\", which is not supported");
  }

  void take(std::size_t bytes) {
    result_.append(rest_.substr(0, bytes));
    rest_.remove_prefix(bytes);
  }
  void replace(std::size_t bytes, std::string_view by) {
    result_.append(by);
    rest_.remove_prefix(bytes);
  }

  void escape() {
    if (rest_.size() < 2) reject("\\ at its end");
    const char kind = rest_[1];
    if (kind == 'p' || kind == 'P') return category();
    if (kind == 'v') return replace(2, "\\x0b");  // a class of characters in PCRE2
    if (kind == 'u') return code_point();
    const bool is_word = std::isalnum(static_cast<unsigned char>(kind)) != 0;
    if (is_word && std::string_view("sSdDrntf").find(kind) == std::string_view::npos) reject(rest_.substr(0, 2));
    take(2);
  }

  void code_point() {
    const std::string_view digits = rest_.substr(2, 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
      reject("\\u");
    replace(6, concat("\\x{", digits, "}"));
  }

  // General categories only: the exceptions of unicode_exceptions.h are about these.
  void category() {
    const std::size_t end = rest_.find('}');
    if (rest_.size() < 3 || rest_[2] != '{' || end == std::string_view::npos) reject(rest_.substr(0, 3));
    std::string_view name = rest_.substr(3, end - 3);
    if (name.starts_with('^')) name.remove_prefix(1);
    constexpr std::string_view kNames =
        " L Lu Ll Lt Lm Lo M Mn Me Mc N Nd Nl No Z Zs Zl Zp P Pd Ps Pe Pc Po Pi Pf S Sm Sc Sk So C Cc Cf ";
    if (name.empty() || kNames.find(concat(" ", name, " ")) == std::string_view::npos) {
      reject(rest_.substr(0, end + 1));
    }
    take(end + 1);
  }

  void character_class() {
    take(rest_.starts_with("[^") ? 2 : 1);
    if (rest_.starts_with(']')) reject("[]");
    while (!rest_.starts_with(']')) {
      if (rest_.empty()) reject("[ without ]");
      if (rest_.starts_with('[') || rest_.starts_with("&&")) reject(rest_.substr(0, 2));
      rest_.starts_with('\\') ? escape() : take(1);
    }
    take(1);
  }

  void group() {
    constexpr std::array<std::string_view, 8> kGroups = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"};
    const auto* kind =
        std::find_if(kGroups.begin(), kGroups.end(), [&](std::string_view group) { return rest_.starts_with(group); });
    if (kind == kGroups.end()) reject(rest_.substr(0, 3));
    take(kind->size());
  }

  void interval() {
    const std::size_t end = rest_.find('}');
    if (end == std::string_view::npos || end == 1 || rest_[1] == ',' ||
        rest_.substr(1, end - 1).find_first_not_of("0123456789,") != std::string_view::npos) {
      reject("{");
    }
    take(end + 1);
    if (rest_.starts_with('+') || rest_.starts_with('?')) reject(concat("}", rest_.substr(0, 1)));
  }

  std::string_view rest_;
  std::string_view whole_;
  const std::string& where_;
  std::string result_;
};

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

void find_literal(std::string_view text, std::string_view literal, std::vector<Pattern::Span>& found) {
  for (std::size_t at = 0; !literal.empty() && (at = text.find(literal, at)) != std::string_view::npos;) {
    found.push_back({at, at + literal.size()});
    at += literal.size();
  }
}

// With the code points about which PCRE2's tables say what Oniguruma's say about those of the text.
std::string_view as_pcre2_sees_it(std::string_view text, std::string& subject) {
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

}  // namespace

Pattern Pattern::regex(std::string_view pattern, const std::string& where) {
  const std::string translated = Translation(pattern, where).run();
  int error = 0;
  std::size_t at = 0;
  pcre2_code* code = pcre2_compile(units(translated), translated.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                                   &error, &at, nullptr);
  if (code == nullptr) {
    std::array<PCRE2_UCHAR, 256> why{};
    pcre2_get_error_message(error, why.data(), why.size());
    throw ConfigError(where, ": the pattern \"", pattern, "\" is damaged: ", reinterpret_cast<const char*>(why.data()));
  }
  Pattern result;
  result.code_ = std::shared_ptr<pcre2_code>(code, pcre2_code_free);
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
  if (code_ == nullptr) {
    find_literal(text, literal_, scratch.matches);
    return;
  }
  if (!is_ascii(text)) text = as_pcre2_sees_it(text, scratch.subject);
  if (scratch.match == nullptr) scratch.match.reset(pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const std::size_t* span = pcre2_get_ovector_pointer(scratch.match.get());
  for (std::size_t start = 0; start < text.size();) {
    const int found = pcre2_match(code_.get(), units(text), text.size(), start, PCRE2_NO_UTF_CHECK, scratch.match.get(),
                                  match_context());
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0) throw DataError("a pattern of the tokenizer takes too long for a text of ", text.size(), " bytes");
    scratch.matches.push_back({span[0], span[1]});
    start = span[1];
    if (span[0] == span[1]) start += start < text.size() ? character_bytes(text.substr(start)) : 1;
  }
}

}  // namespace sluice::text
