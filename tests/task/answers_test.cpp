#include "task/answers.h"

#include <gmock/gmock.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "task/squad_score.h"

namespace sluice::task {
namespace {

using Numbers = std::vector<double>;

// Tokens: [CLS] question [SEP] one two three [SEP]
const std::string kContext = "one zwö drei";
const std::vector<text::CharRange> kOffsets{{0, 3}, {4, 7}, {8, 12}};

std::string answer(AnswerSearch search, const Numbers& starts, const Numbers& ends) {
  search.add({starts, ends, 3, kOffsets});
  return search.text(kContext);
}

TEST(Answers, LieInTheContextAndEndNotBeforeTheirStart) {
  EXPECT_EQ(answer(AnswerSearch({}), {9, 9, 9, 0, 5, 0, 9}, {9, 9, 9, 4, 0, 3, 9}), "zwö drei");
  EXPECT_EQ(answer(AnswerSearch({.most_tokens = 1}), {9, 9, 9, 0, 5, 0, 9}, {9, 9, 9, 6, 0, 3, 9}), "one");
  const double nan = std::nan("");
  EXPECT_EQ(answer(AnswerSearch({}), {nan, nan, nan, nan, 1, nan, nan}, {0, 0, 0, nan, nan, 0, 0}), "zwö drei");
}

TEST(Answers, WithoutContextAreEmpty) {
  AnswerSearch search({});
  EXPECT_EQ(search.text(kContext), "");
  EXPECT_THROW(search.add({Numbers{1}, Numbers{1}, 3, kOffsets}), BugError);
  EXPECT_THROW(search.add({{}, {}, 0, {}}), BugError);
  search.add({Numbers{1}, Numbers{1}, 1, {}});
  EXPECT_EQ(search.text(kContext), "");
}

TEST(Answers, AreTheBestOfAllWindowsAndNoneIsTheLeastOfTheirFirstPositions) {
  AnswerSearch search({.may_have_none = true, .none_threshold = 1});
  search.add({Numbers{5, 1}, Numbers{5, 1}, 1, std::vector<text::CharRange>{{0, 3}}});
  EXPECT_EQ(search.none_odds(), 8);
  EXPECT_EQ(search.text(kContext), "");
  search.add({Numbers{1, 2}, Numbers{2, 2}, 1, std::vector<text::CharRange>{{4, 7}}});
  EXPECT_EQ(search.none_odds(), -1);
  EXPECT_EQ(search.text(kContext), "zwö");
  EXPECT_EQ(search.best().size(), 2U);
}

TEST(Answers, AreCutAtCharacters) {
  EXPECT_EQ(text_between("aößc", {1, 3}), "öß");
  EXPECT_EQ(text_between("aößc", {3, 9}), "c");
  EXPECT_EQ(text_between("aößc", {9, 10}), "");
}

TEST(SquadCount, CountsAMissingPredictionAsItsVersionDoes) {
  const std::vector<std::string> gold{"The Broncos", "Denver"}, none;
  SquadCount first(SquadVersion::k1), second(SquadVersion::k2);
  for (SquadCount* count : {&first, &second}) {
    count->add("the Denver Broncos", gold);  // precision 1/2, recall 1
    count->add("broncos!", gold);
    count->add(std::nullopt, gold);
  }
  EXPECT_EQ(first.all().questions, 3);
  EXPECT_NEAR(first.all().exact_match, 100.0 / 3, 1e-12);
  EXPECT_NEAR(first.all().f1, 100 * (2.0 / 3 + 1) / 3, 1e-12);
  EXPECT_EQ(second.all().questions, 2);
  second.add("", none);
  second.add("no", none);
  EXPECT_EQ(second.all().exact_match, 50);
  EXPECT_EQ(second.with_answer().exact_match, 50);
  EXPECT_EQ(second.without_answer().f1, 50);
  EXPECT_EQ(SquadCount(SquadVersion::k2).all().questions, 0);
}

}  // namespace
}  // namespace sluice::task
