#include "task/squad_score.h"

#include <unicode/ucasemap.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include "core/check.h"

namespace sluice::task {
namespace {

std::string lower_case(std::string_view text) {
  UErrorCode error = U_ZERO_ERROR;
  const std::unique_ptr<UCaseMap, void (*)(UCaseMap*)> map(ucasemap_open("", 0, &error), ucasemap_close);
  check(U_SUCCESS(error) != 0, "ICU's case map");
  std::string lower(text.size(), '\0');
  const auto convert = [&] {
    error = U_ZERO_ERROR;
    return ucasemap_utf8ToLower(map.get(), lower.data(), static_cast<std::int32_t>(lower.size()), text.data(),
                                static_cast<std::int32_t>(text.size()), &error);
  };
  lower.resize(static_cast<std::size_t>(convert()));
  if (error == U_BUFFER_OVERFLOW_ERROR) convert();
  return lower;
}

// str.isspace() of Python.
bool is_space(UChar32 point) {
  const bool is_separator = point >= 0x1c && point <= 0x1f;
  return (point >= 9 && point <= 13) || is_separator || point == 0x85 ||
         u_getIntPropertyValue(point, UCHAR_GENERAL_CATEGORY) == U_SPACE_SEPARATOR || point == 0x2028 ||
         point == 0x2029;
}

// \w of Python.
bool is_word(UChar32 point) { return point == '_' || (U_GET_GC_MASK(point) & (U_GC_L_MASK | U_GC_N_MASK)) != 0; }

bool is_article(std::string_view word) { return word == "a" || word == "an" || word == "the"; }

std::string without_punctuation(std::string_view text) {
  std::string kept;
  std::ranges::copy_if(text, std::back_inserter(kept),
                       [](char c) { return c < '!' || c > '~' || std::isalnum(static_cast<unsigned char>(c)) != 0; });
  return kept;
}

// Without articles, cut at white space.
std::vector<std::string> words_of(std::string_view text) {
  const std::string normal = without_punctuation(lower_case(text));
  std::vector<std::string> words(1);
  std::string run;  // of word characters, which may be an article
  const auto end_run = [&] {
    if (is_article(run)) {
      words.emplace_back();
    } else {
      words.back() += run;
    }
    run.clear();
  };
  for (std::int32_t at = 0; at < static_cast<std::int32_t>(normal.size());) {
    const std::int32_t begin = at;
    UChar32 point = 0;
    U8_NEXT_OR_FFFD(normal.data(), at, static_cast<std::int32_t>(normal.size()), point);
    const std::string_view character(normal.data() + begin, static_cast<std::size_t>(at - begin));
    if (is_word(point)) {
      run += character;
      continue;
    }
    end_run();
    if (is_space(point)) {
      words.emplace_back();
    } else {
      words.back() += character;
    }
  }
  end_run();
  std::erase(words, "");
  return words;
}

double word_f1(const std::vector<std::string>& answer, const std::vector<std::string>& gold, SquadVersion version) {
  if (version == SquadVersion::k2 && (answer.empty() || gold.empty())) return answer == gold ? 1 : 0;
  std::map<std::string, int> left;
  for (const std::string& word : gold) ++left[word];
  const auto shared =
      static_cast<double>(std::ranges::count_if(answer, [&](const std::string& word) { return left[word]-- > 0; }));
  if (shared == 0) return 0;
  const double precision = shared / static_cast<double>(answer.size());
  const double recall = shared / static_cast<double>(gold.size());
  return 2 * precision * recall / (precision + recall);
}

}  // namespace

std::string normalized_answer(std::string_view text) {
  std::string normal;
  for (const std::string& word : words_of(text)) normal += (normal.empty() ? "" : " ") + word;
  return normal;
}

AnswerScore score_answer(std::string_view answer, std::span<const std::string> gold, SquadVersion version) {
  const std::vector<std::string> words = words_of(answer);
  std::vector<std::vector<std::string>> wanted;
  for (const std::string& text : gold) {
    std::vector<std::string> of_text = words_of(text);
    if (version == SquadVersion::k1 || !of_text.empty()) wanted.push_back(std::move(of_text));
  }
  if (version == SquadVersion::k2 && wanted.empty()) wanted.emplace_back();
  AnswerScore best;
  for (const auto& one : wanted) {
    best.exact = std::max(best.exact, words == one ? 1.0 : 0.0);
    best.f1 = std::max(best.f1, word_f1(words, one, version));
  }
  return best;
}

void SquadCount::add(const std::optional<std::string>& answer, std::span<const std::string> gold) {
  Sums& sums = gold.empty() ? without_answer_ : with_answer_;
  if (!answer && version_ == SquadVersion::k2) return;
  ++sums.questions;
  if (!answer) return;
  const AnswerScore score = score_answer(*answer, gold, version_);
  sums.exact += score.exact;
  sums.f1 += score.f1;
}

SquadScores SquadCount::Sums::scores() const {
  if (questions == 0) return {};
  const auto number = static_cast<double>(questions);
  return {100 * exact / number, 100 * f1 / number, questions};
}

SquadScores SquadCount::all() const {
  return Sums{with_answer_.exact + without_answer_.exact, with_answer_.f1 + without_answer_.f1,
              with_answer_.questions + without_answer_.questions}
      .scores();
}

}  // namespace sluice::task
