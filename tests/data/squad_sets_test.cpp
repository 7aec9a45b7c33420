#include "data/squad_dataset.h"

#include <algorithm>

#include "data/subset.h"
#include "text_sets.h"

namespace sluice::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using SquadSets = TextSets;

std::string question(const std::string& id, const std::string& answers) {
  return R"({"id": ")" + id + R"(", "question": " a b", "answers": [)" + answers + "]}";
}
std::string squad(const std::string& context, const std::string& questions) {
  return R"({"data": [{"paragraphs": [{"context": ")" + context + R"(", "qas": [)" + questions + "]}]}]}";
}

TEST_F(SquadSets, HaveWindowsThatOverlapAndTheTokensOfTheAnswer) {
  write("train.json", squad("hello unaff, a b",
                            question("q", R"({"text": "unaff,", "answer_start": 6})") + ", " + question("none", "")));
  // [CLS] a b [SEP], four tokens of the context: hello un ##aff , a b, and [SEP]
  const auto set = open("squad", options(9, 2));
  ASSERT_EQ(set->size(), 4);
  EXPECT_EQ(set->info().classes, 12);
  EXPECT_EQ(set->info().context, 9);
  EXPECT_FALSE(set->info().has_bytes);
  const Fields fields = set->read_fields(Numbers{0, 1});
  EXPECT_THAT(names_of(fields), ElementsAre("ends", "inputs", "starts", "types"));
  EXPECT_THAT(numbers(fields.at("inputs")), ElementsAre(kCls, kA, kB, kSep, kHello, kUn, kAff, kComma, kSep,  //
                                                        kCls, kA, kB, kSep, kAff, kComma, kA, kB, kSep));
  EXPECT_THAT(numbers(fields.at("types")), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1));
  EXPECT_THAT(numbers(fields.at("starts")), ElementsAre(5, 0)) << "the second window lacks the answer's first token";
  EXPECT_THAT(numbers(fields.at("ends")), ElementsAre(7, 0));
  EXPECT_THAT(numbers(set->read_fields(Numbers{2}).at("ends")), ElementsAre(0));
}

TEST_F(SquadSets, KnowTheQuestionAndTheCharactersOfAWindowInEachPart) {
  write("train.json", squad("hello unaff, a b",
                            question("q", R"({"text": "unaff,", "answer_start": 6})") + ", " + question("none", "")));
  const auto part = subset(open("squad", options(9, 2)), {3, 1}, {});
  ASSERT_NE(part->question_set(), nullptr);
  const QuestionWindow window = part->question_set()->window(part->sample_in_whole(0));
  EXPECT_EQ(window.question, 1);
  EXPECT_EQ(part->question_set()->file().questions[1].id, "none");
  EXPECT_EQ(window.first_context, 4U);
  EXPECT_THAT(window.offsets, ElementsAre(text::CharRange{8, 11}, text::CharRange{11, 12}, text::CharRange{13, 14},
                                          text::CharRange{15, 16}));
  EXPECT_THAT(part->lengths(), ElementsAre(9, 9));
  EXPECT_EQ(numbers(part->read_fields(Numbers{1}).at("inputs"))[4], kAff);
}

TEST_F(SquadSets, APartOfSquadHasAllWindowsOfItsQuestions) {
  write("train.json", squad("hello unaff, a b", question("q", R"({"text": "unaff,", "answer_start": 6})") + ", " +
                                                    question("r", "") + ", " + question("s", "")));
  const auto questions_in = [](const Dataset& part) {
    Numbers questions;
    for (std::int64_t i = 0; i < part.size(); ++i)
      questions.push_back(part.question_set()->question_of(part.sample_in_whole(i)));
    return questions;
  };
  for (const auto& [limit, wanted] : {std::pair{1, Numbers{0, 0}}, {2, {0, 0}}, {3, {0, 0, 1, 1}}}) {
    const auto part =
        open_dataset({.name = "squad", .path = folder_.path(), .limit = limit, .text = options(9, 2)}, Split::kTrain);
    EXPECT_EQ(questions_in(*part), wanted);
  }
  const HeldOut cut = hold_out(open("squad", options(9, 2)), 0.3);
  const Numbers train = questions_in(*cut.train), held = questions_in(*cut.validation);
  ASSERT_THAT(held, testing::SizeIs(2));
  EXPECT_EQ(held[0], held[1]);
  EXPECT_THAT(train, testing::AllOf(testing::SizeIs(4), testing::Not(testing::Contains(held[0]))));
  EXPECT_THAT([&] { (void)hold_out(open("squad", options(9, 2)), 0.9); }, refuses("holds 3 of 3 questions out"));
}

TEST_F(SquadSets, LeaveAnswersThatDifferInSpacesOutOfTraining) {
  const std::string questions = question("q", R"({"text": "a b", "answer_start": 0})") + ", " +
                                question("r", R"({"text": "a", "answer_start": 0})");
  write("train-v1.1.json", squad("a  b", questions));
  write("dev-v2.0.json", squad("a  b", questions));
  EXPECT_EQ(open("squad", options(9))->size(), 1);
  const auto test = open("squad", options(9), Split::kTest);
  EXPECT_THAT(numbers(test->read_fields(Numbers{0, 1}).at("starts")), ElementsAre(kNoTarget, 4));
}

TEST_F(SquadSets, SayWhatIsWrong) {
  EXPECT_THAT(opening("squad", options(9)), says("has no file of the train split; put one there as train.json or"));
  write("train.json", squad("a", question("q", "")));
  EXPECT_THAT(opening("squad", {}), refuses("data.tokenizer is empty, but data.name = \"squad\" needs one"));
  EXPECT_THAT(opening("squad", options(0)), refuses("data.max_length = 0"));
  EXPECT_THAT(opening("squad", options(9, 9)), refuses("data.stride = 9"));
  try {
    opening("squad", options(4))();
    ADD_FAILURE() << "no room for the context";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("train.json: question \"q\": "));
    EXPECT_THAT(error.what(), HasSubstr(": set data.max_length, or a smaller data.stride"));
  }
}

}  // namespace
}  // namespace sluice::data
