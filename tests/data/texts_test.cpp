#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "core/error.h"
#include "data/in_order.h"
#include "data/packing.h"
#include "data/squad_file.h"
#include "data/table.h"
#include "support/files.h"

namespace sluice::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(FirstFit, IsTheFirstRowWithRoom) {
  std::mt19937 draw(1);
  for (int round = 0; round < 200; ++round) {
    const int room = 1 + static_cast<int>(draw() % 30);
    std::vector<std::int32_t> lengths(draw() % 60), rooms;
    for (auto& length : lengths) length = 1 + static_cast<std::int32_t>(draw() % room);
    std::vector<std::int64_t> rows;
    for (const std::int32_t length : lengths) {
      const auto found = std::ranges::find_if(rooms, [&](int left) { return left >= length; });
      rows.push_back(found - rooms.begin());
      if (found == rooms.end()) rooms.push_back(room);
      rooms[rows.back()] -= length;
    }
    EXPECT_EQ(first_fit(lengths, room), rows);
  }
  EXPECT_THROW(static_cast<void>(first_fit(std::vector<std::int32_t>{4}, 3)), BugError);
}

// Jobs 0 .. count - 1; `fails` throws.
std::vector<int> run_in_order(int threads, int count, int fails = -1) {
  std::vector<int> taken;
  int given = 0;
  const auto next = [&]() -> Job {
    if (given == count) return nullptr;
    return [&, number = given++]() -> Finish {
      if (number == fails || (fails >= 0 && number == fails + 1)) throw DataError("job ", number);
      return [&taken, number] { taken.push_back(number); };
    };
  };
  try {
    in_order(threads, next, [] { return std::string(); });
  } catch (const DataError& error) {
    EXPECT_EQ(error.what(), concat("job ", fails));
  }
  return taken;
}

TEST(InOrder, TakesResultsInTheOrderOfTheJobsUpToTheFirstError) {
  std::vector<int> all(300), before(100);
  std::iota(all.begin(), all.end(), 0);
  std::iota(before.begin(), before.end(), 0);
  for (const int threads : {0, 1, 2, 7}) {
    EXPECT_EQ(run_in_order(threads, 300), all);
    EXPECT_EQ(run_in_order(threads, 300, /*fails=*/100), before);
  }
  const auto broken = []() -> Job { throw DataError("no job"); };
  EXPECT_THROW(in_order(3, broken, [] { return std::string(); }), DataError);
}

std::string squad_json(const std::string& answer, int start, const std::string& more = "") {
  return concat(R"({"version": "1.1", "data": [{"paragraphs": [{"context": "Zwölf kleine  Bären", "qas": [)",
                R"({"id": "q1", "question": "Wer?", "answers": [{"text": ")", answer, R"(", "answer_start": )", start,
                "}]}", more, "]}]}]}");
}

TEST(SquadFile, HasQuestionsWithTheCharactersOfTheirAnswers) {
  const std::string none = R"(, {"id": "q2", "question": "Wann?", "is_impossible": true, "answers": []})";
  const SquadFile file = parse_squad(squad_json("kleine", 6, none), "f.json");
  ASSERT_EQ(file.questions.size(), 2U);
  EXPECT_EQ(file.questions[0].begin, 6);
  EXPECT_EQ(file.questions[0].end, 12);
  EXPECT_THAT(file.questions[0].answers, ElementsAre("kleine"));
  EXPECT_TRUE(file.questions[1].answers.empty());
  EXPECT_TRUE(file.has_impossible);
  EXPECT_EQ(file.misplaced_answers, 0);
  const SquadFile old = parse_squad("\xef\xbb\xbf" + squad_json("Zwölf", 0), "f.json");
  EXPECT_FALSE(old.has_impossible);
  const std::string without_flag = R"(, {"id": "q3", "question": "Wie?", "answers": []})";
  EXPECT_TRUE(parse_squad(squad_json("kleine", 6, without_flag), "f.json").has_impossible);
  EXPECT_EQ(old.questions[0].end, 5);
}

TEST(SquadFile, CountsAnswersThatDifferInWhiteSpace) {
  for (const char* answer : {"kleine Bären", " kleine\\nBären "}) {
    const SquadFile file = parse_squad(squad_json(answer, 6), "f.json");
    EXPECT_EQ(file.misplaced_answers, 1) << answer;
    EXPECT_EQ(file.questions[0].begin, -1);
  }
}

TEST(SquadFile, SaysWhatIsWrong) {
  const auto parsing = [](const std::string& content) {
    return [content] { static_cast<void>(parse_squad(content, "f.json")); };
  };
  const auto says = [](const std::string& text) { return ThrowsMessage<DataError>(HasSubstr(text)); };
  EXPECT_THAT(parsing(squad_json("kleine", 7)),
              says("f.json: the answer \"kleine\" of question \"q1\" is not in its context at character 7; correct"));
  for (const int start : {-1, 99}) EXPECT_THAT(parsing(squad_json("kleine", start)), says("is not in its context"));
  EXPECT_THAT(parsing(squad_json("kleine Bärem", 6)), says("is not in its context at character 6"));
  EXPECT_THAT(parsing(squad_json("Bären und mehr", 14)), says("is not in its context"));
  EXPECT_THAT(parsing(R"({"data": [{"paragraphs": [{"context": "a", "qas": [
                  {"id": "q", "question": "?", "answers": []}, {"id": "q", "question": "!", "answers": []}]}]}]})"),
              says("question \"q\" occurs twice; give each question an id of its own"));
  EXPECT_THAT(parsing("{"), says("f.json: is not JSON in UTF-8: "));
  EXPECT_THAT(parsing("{\"data\": [{\"paragraphs\": [{\"context\": \"\xff\"}]}]}"), says("is not JSON in UTF-8"));
  EXPECT_THAT(parsing("[]"), says("the file has no \"data\"; SQuAD's format needs it"));
  EXPECT_THAT(parsing(R"({"data": 1})"), says("\"data\" of the file is not a list"));
  EXPECT_THAT(parsing(R"({"data": []})"), says("has no questions"));
  EXPECT_THAT(parsing(R"({"data": [{"paragraphs": [{"context": 7}]}]})"),
              says("\"context\" of a paragraph is not a text"));
}

class TableTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& content) const {
    test::spill(folder_ / name, content);
    return folder_ / name;
  }
  std::vector<std::vector<std::string>> rows_of(const std::string& name, const std::string& content,
                                                const std::vector<std::string>& columns) const {
    Table table(write(name, content), columns);
    std::vector<std::vector<std::string>> all;
    for (std::vector<Table::Row> rows; table.next(rows, /*bytes=*/1); rows.clear()) {
      for (const Table::Row& row : rows) all.push_back(table.cells(row));
    }
    EXPECT_EQ(table.share_read(), 1);
    return all;
  }
  auto reading(const std::string& name, const std::string& content) const {
    return [=, this] { static_cast<void>(rows_of(name, content, {"text"})); };
  }

  test::TempDir folder_;
};

TEST_F(TableTest, ReadsCsvAsRfc4180AndLeavesBlankRowsOut) {
  EXPECT_THAT(rows_of("a.csv", "label,text\r\n1,\"a \"\"b\"\", c\nd\"\r\n\r\n2,\n", {"text", "label"}),
              ElementsAre(ElementsAre("a \"b\", c\nd", "1"), ElementsAre("", "2")));
  EXPECT_THAT(rows_of("a.tsv", "x\ttext\n1\t2,3", {"text"}), ElementsAre(ElementsAre("2,3")));
}

TEST_F(TableTest, ReadsJsonlWithNumbers) {
  EXPECT_THAT(rows_of("a.jsonl", "{\"text\": \"a\\n\u00fc\", \"label\": 3}\n\n{\"label\": -0.5, \"text\": true}\n",
                      {"text", "label"}),
              ElementsAre(ElementsAre("a\n\u00fc", "3"), ElementsAre("true", "-0.5")));
}

TEST_F(TableTest, SaysWhatIsWrong) {
  const auto says = [](const std::string& text) { return ThrowsMessage<DataError>(HasSubstr(text)); };
  EXPECT_THAT(reading("a.csv", "label,texts\n1,2\n"),
              says("a.csv: its first row has no \"text\", but \"label\", \"texts\"; correct data.text_column, "
                   "data.pair_column or data.label_column; did you mean"));
  EXPECT_THAT(reading("a.csv", "label,text\n1,2\n1,2,3\n"),
              says("a.csv: row 3 has 3 columns, but the first row names 2; quote"));
  EXPECT_THAT(reading("a.csv", ""), says("is empty"));
  EXPECT_THAT(reading("a.jsonl", "{\"text\": \"a\"}\n{\"txt\": \"a\"}\n"),
              says("a.jsonl: line 2 has no \"text\", but \"txt\"; correct data.text_column, data.pair_column or "
                   "data.label_column; did you mean"));
  EXPECT_THAT(reading("a.jsonl", "[1]\n"), says("a.jsonl: line 1 is not a JSON object in UTF-8"));
  EXPECT_THAT(reading("a.jsonl", "{\"text\": \"\xff\"}\n"), says("is not a JSON object in UTF-8"));
  EXPECT_THAT(reading("a.jsonl", "{\"text\": [1]}\n"), says("line 1 has neither a text nor a number as \"text\""));
}

TEST_F(TableTest, ALongLineIsRefusedBeforeItIsRead) {
  const std::filesystem::path file = write("a.jsonl", "{\"text\": \"");
  std::filesystem::resize_file(file, std::uintmax_t{10} << 30);  // a hole
  Table table(file, {"text"});
  std::vector<Table::Row> rows;
  EXPECT_THAT([&] { static_cast<void>(table.next(rows, 1)); },
              ThrowsMessage<DataError>(HasSubstr("line 1 has more than 64.0 MiB")));
}

}  // namespace
}  // namespace sluice::data
