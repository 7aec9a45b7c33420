#include "text_sets.h"

#include <map>
#include <set>

#include "core/concat.h"
#include "core/rng.h"
#include "core/text.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "data/token_dataset.h"
#include "text/token_file.h"
#include "text/tokenize_files.h"

namespace sluice::data {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

TEST_F(TextSets, RowsArePaddedAlikeWithAMaskOnlyIfTheyDiffer) {
  write("train.jsonl", "{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"a b\", \"label\": \"x\"}\n");
  const auto set = open("jsonl", options(6));
  EXPECT_THAT(set->lengths(), ElementsAre(3, 4));
  EXPECT_THAT(names_of(set->read_fields(Numbers{1, 1})), ElementsAre("inputs", "targets"));
  const Fields fields = set->read_fields(Numbers{0, 1});
  EXPECT_THAT(numbers(fields.at("inputs")), ElementsAre(kCls, kA, kSep, 0, kCls, kA, kB, kSep));
  EXPECT_THAT(numbers(fields.at("mask")), ElementsAre(1, 1, 1, 0, 1, 1, 1, 1));
  TextOptions whole = options(6);
  whole.pads_to_max = true;
  EXPECT_THAT(open("jsonl", whole)->read_fields(Numbers{1}).at("mask").sizes(), ElementsAre(1, 6));
  TextOptions with_mask = options(6);
  with_mask.always_has_mask = true;
  EXPECT_THAT(numbers(open("jsonl", with_mask)->read_fields(Numbers{1}).at("mask")), ElementsAre(1, 1, 1, 1));
  EXPECT_THROW(static_cast<void>(set->read_fields(Numbers{2})), BugError);
}

TEST_F(TextSets, ClassesAreTheLabelsOfTrainingInOrder) {
  write("train.csv", "text,label\na,zoo\nb,ape\na,zoo\n");
  write("test.csv", "text,label\nb,zoo\n");
  write("val.csv", "not asked for");
  const auto train = open("csv", options(8));
  EXPECT_THAT(train->info().class_names, ElementsAre("ape", "zoo"));
  EXPECT_THAT(numbers(train->read_fields(Numbers{0, 1, 2}).at("targets")), ElementsAre(1, 0, 1));
  const auto test = open("csv", options(8), Split::kTest);
  EXPECT_THAT(test->info().class_names, ElementsAre("ape", "zoo"));
  EXPECT_THAT(numbers(test->read_fields(Numbers{0}).at("targets")), ElementsAre(1));
  write("test.csv", "text,label\nb,zo\n");
  EXPECT_THAT(opening("csv", options(8), Split::kTest),
              says("test.csv: row 2 has the label \"zo\", which is not one of the classes: ape, zoo; did you"));
  write("train.csv", "text,label\na,10\nb,9\na,-1\n");
  EXPECT_THAT(open("csv", options(8))->info().class_names, ElementsAre("-1", "9", "10"));
}

TEST_F(TextSets, ClassesHaveTheOrderOfAModelThatKnowsThem) {
  write("train.csv", "text,label\na,zoo\nb,ape\n");
  write("test.csv", "text,label\nb,cow\na,ape\n");
  TextOptions wanted = options(8);
  wanted.class_names = {"zoo", "cow", "ape"};
  for (const Split split : {Split::kTrain, Split::kTest})
    EXPECT_THAT(open("csv", wanted, split)->info().class_names, ElementsAre("zoo", "cow", "ape"));
  EXPECT_THAT(numbers(open("csv", wanted)->read_fields(Numbers{0, 1}).at("targets")), ElementsAre(0, 2));
  const auto test = open("csv", wanted, Split::kTest);
  EXPECT_THAT(numbers(test->read_fields(Numbers{0, 1}).at("targets")), ElementsAre(1, 2)) << "though cow is new";
  wanted.class_names = {"zoo", "cow"};
  testing::internal::CaptureStderr();
  EXPECT_THAT(open("csv", wanted)->info().class_names, ElementsAre("ape", "zoo"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("label ape of the data is not a class of the model (zoo, cow)"));
  wanted.must_know_labels = true;
  for (const Split split : {Split::kTrain, Split::kTest})
    EXPECT_THAT(opening("csv", wanted, split), says("label \"ape\" is not one of the model's: zoo, cow"));
  wanted.class_names = {"zoo", "cow", "ape"};
  EXPECT_THAT(numbers(open("csv", wanted)->read_fields(Numbers{0, 1}).at("targets")), ElementsAre(0, 2));
}

TEST_F(TextSets, DefaultNamesOfAModelAreNumbers) {
  TextOptions wanted = options(8);
  for (int i = 0; i < 12; ++i) wanted.class_names.push_back(concat("LABEL_", i));
  write("train.csv", "text,label\na,LABEL_2\nb,LABEL_10\n");
  EXPECT_THAT(numbers(open("csv", wanted)->read_fields(Numbers{0, 1}).at("targets")), ElementsAre(2, 10));
  write("train.csv", "text,label\na,11\nb,3\n");
  write("test.csv", "text,label\na,4\n");
  EXPECT_THAT(numbers(open("csv", wanted)->read_fields(Numbers{0, 1}).at("targets")), ElementsAre(11, 3));
  EXPECT_EQ(open("csv", wanted)->info().class_names.size(), 12U);
  EXPECT_THAT(numbers(open("csv", wanted, Split::kTest)->read_fields(Numbers{0}).at("targets")), ElementsAre(4));
  for (const char* labels : {"a,12\nb,3\n", "a,-1\nb,3\n", "a,x\nb,3\n"}) {
    write("train.csv", std::string("text,label\n") + labels);
    EXPECT_EQ(open("csv", wanted)->info().class_names.size(), 2U) << labels;
  }
}

TEST_F(TextSets, RefuseLabelsThatAreNone) {
  write("train.csv", "text,label\na,x\nb,\n");
  EXPECT_THAT(opening("csv", options(8)), says("train.csv: row 3 has an empty label; fill it in"));
  write("train.csv", "text,label\na,1.5\nb,2.5\n");
  write("test.csv", "text,label\na,3.25\n");
  EXPECT_THAT(opening("csv", options(8), Split::kTest), says("or set model.classes = 1 to predict numbers"));
}

TEST_F(TextSets, LabelsMayBeNumbers) {
  write("train.tsv", "s1\ts2\tscore\nhello hello\ta b\t2.5\na\tb\t-1\n");
  TextOptions wanted = options(6);
  wanted.text = "s1", wanted.text2 = "s2", wanted.label = "score", wanted.label_kind = LabelKind::kNumber;
  const auto set = open("csv", wanted);
  const Fields fields = set->read_fields(Numbers{0, 1});
  EXPECT_THAT(names_of(fields), ElementsAre("inputs", "mask", "targets", "types"));
  EXPECT_THAT(numbers(fields.at("inputs")).front(), kCls);
  EXPECT_THAT(numbers(fields.at("types")), ElementsAre(0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0));
  EXPECT_TRUE(fields.at("targets").equal(at::tensor({2.5, -1.0}, at::kDouble)));
  EXPECT_EQ(set->info().field("targets")->type, at::kDouble);
  EXPECT_EQ(set->info().field("positions"), nullptr);
  write("train.tsv", "s1\ts2\tscore\na\tb\tgood\n");
  EXPECT_THAT(opening("csv", wanted), says("row 2 has the label \"good\", which is not a number"));
  write("train.tsv", "s1\ts2\tscore\n");
  EXPECT_THAT(opening("csv", wanted), says("has no texts"));
}

TEST_F(TextSets, WordsHaveALabelEachForTheirFirstToken) {
  write("train.jsonl", R"({"words": ["hello", "unaff", "", "a"], "tags": ["B-X", "I-X", "O", 7]})"
                       "\n"
                       R"({"words": ["b"], "tags": ["O"]})"
                       "\n");
  write("test.jsonl", R"({"words": ["a"], "tags": ["I-X"]})");
  TextOptions wanted = options(8);
  wanted.text = "words", wanted.label = "tags", wanted.label_kind = LabelKind::kClassOfEachWord;
  const auto set = open("jsonl", wanted);
  EXPECT_THAT(set->info().class_names, ElementsAre("7", "B-X", "I-X", "O"));
  const Fields fields = set->read_fields(Numbers{0, 1});
  EXPECT_THAT(numbers(fields.at("inputs")), ElementsAre(kCls, kHello, kUn, kAff, kA, kSep, kCls, kB, kSep, 0, 0, 0));
  constexpr std::int64_t kNone = kNoTarget;
  EXPECT_THAT(numbers(fields.at("targets")),
              ElementsAre(kNone, 1, 2, kNone, 0, kNone, kNone, 3, kNone, kNone, kNone, kNone));
  EXPECT_THAT(numbers(open("jsonl", wanted, Split::kTest)->read_fields(Numbers{0}).at("targets")),
              ElementsAre(kNone, 2, kNone));
  wanted.max_length = 3;
  EXPECT_THAT(numbers(open("jsonl", wanted)->read_fields(Numbers{0}).at("targets")), ElementsAre(kNone, 1, kNone));
  EXPECT_THAT(open("jsonl", wanted)->info().class_names, ElementsAre("7", "B-X", "I-X", "O"));
  EXPECT_THAT(opening("csv", wanted), refuses("use data.name = \"jsonl\""));
  write("train.jsonl", R"({"words": ["a", "b"], "tags": ["O"]})");
  EXPECT_THAT(opening("jsonl", wanted), says("line 1 has 2 words, but 1 label; give each word one"));
  write("train.jsonl", R"({"words": "a b", "tags": ["O", "O"]})");
  EXPECT_THAT(opening("jsonl", wanted), says("line 1 has no list as \"words\""));
}

// Tokens 0, 1, 2, ... as nanoGPT's uint16.
std::string uint16_tokens(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += {static_cast<char>(i & 255), static_cast<char>(i >> 8)};
  return bytes;
}

TEST_F(TextSets, TokensAreWindowsOfTheRunningText) {
  write("a_train_1.bin", uint16_tokens(7));
  write("a_train_2.bin", uint16_tokens(4));
  write("a_val_1.bin", uint16_tokens(6));
  TextOptions wanted = options(5);
  wanted.vocabulary = 7;
  const auto set = open("tokens", wanted);
  EXPECT_EQ(set->size(), 2);
  EXPECT_EQ(set->info().classes, 7);
  const Fields fields = set->read_fields(Numbers{1, 0});
  EXPECT_THAT(names_of(fields), ElementsAre("inputs", "targets"));
  EXPECT_THAT(numbers(fields.at("inputs")), ElementsAre(5, 6, 0, 1, 2, 0, 1, 2, 3, 4));
  EXPECT_THAT(numbers(fields.at("targets")), ElementsAre(6, 0, 1, 2, 3, 1, 2, 3, 4, 5));
  EXPECT_EQ(open("tokens", wanted, Split::kTest)->size(), 1);
  wanted.vocabulary = 6;
  EXPECT_THROW(static_cast<void>(open("tokens", wanted)->read_fields(Numbers{1})), DataError) << "token 6 is none";
  wanted.tokenizer.clear(), wanted.vocabulary = 0;
  EXPECT_THAT(opening("tokens", wanted), refuses("does not say how many tokens its vocabulary has"));
  wanted.vocabulary = 7, wanted.max_length = 6;
  EXPECT_THAT(opening("tokens", wanted, Split::kTest), says("the test split has 6 tokens, but needs 7"));
}

TEST_F(TextSets, TokenFilesAreOfTheSplitThatTheirNamesHaveAsAWord) {
  write("latest_train.bin", uint16_tokens(50));
  write("my-val.bin", uint16_tokens(30));
  TextOptions wanted = options(4);
  wanted.vocabulary = 64;
  EXPECT_EQ(open("tokens", wanted)->size(), 12);
  EXPECT_EQ(open("tokens", wanted, Split::kTest)->size(), 7);
  write("test.bin", uint16_tokens(10));
  EXPECT_EQ(open("tokens", wanted, Split::kTest)->size(), 2) << "and not of my-val.bin, too";
}

class TokenFilesOfASet : public TextSets {
 protected:
  void tokenize(const std::string& name, const std::string& tokenizer = "tokenizer.json") const {
    write(name + ".txt", "a b hello a b");
    std::filesystem::remove(folder_ / (name + ".tokens"));
    static_cast<void>(text::tokenize_files(
        {folder_ / (name + ".txt")}, {.tokenizer = folder_ / tokenizer, .folder = folder_.path()}, [](const auto&) {}));
  }
};

TEST_F(TokenFilesOfASet, AreWrittenWithOneTokenizer) {
  write("other.json", text::bert_json() + "\n");
  tokenize("train");
  tokenize("test");
  testing::internal::CaptureStderr();
  EXPECT_EQ(open("tokens", options(4))->size(), 1);
  EXPECT_EQ(open("tokens", options(4), Split::kTest)->size(), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  TextOptions other = options(4);
  other.tokenizer = folder_ / "other.json";
  testing::internal::CaptureStderr();
  EXPECT_EQ(open("tokens", other)->size(), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("was written with another file than data.tokenizer"));
  tokenize("test", "other.json");
  EXPECT_THAT(opening("tokens", options(4), Split::kTest), says("train.tokens; write both with one: sluice tokenize"));
}

TEST_F(TokenFilesOfASet, AreRefusedIfDamaged) {
  tokenize("train");
  std::string damaged = test::slurp(folder_ / "train.tokens");
  damaged[sizeof(text::TokenFileHeader)] ^= 1;
  write("train.tokens", damaged);
  EXPECT_THAT(opening("tokens", options(4)), says("is damaged: its checksum differs"));
}

TEST_F(TextSets, OneTokenFileHasItsLastTenthForTesting) {
  write("all.bin", uint16_tokens(100));
  TextOptions wanted = options(4);
  wanted.vocabulary = 100;
  const auto of = [&](Split split) { return open_tokens(folder_ / "all.bin", wanted, split); };
  EXPECT_EQ(of(Split::kTrain)->size(), 22);
  EXPECT_EQ(of(Split::kTest)->size(), 2);
  EXPECT_THAT(numbers(of(Split::kTest)->read_fields(Numbers{0}).at("targets")), ElementsAre(91, 92, 93, 94));
}

class Documents final : public TokenSource {
 public:
  explicit Documents(const Numbers& lengths) {
    for (const std::int64_t length : lengths) begins_.push_back(begins_.back() + length);
  }
  [[nodiscard]] std::int64_t tokens() const override { return begins_.back(); }
  [[nodiscard]] std::int64_t documents() const override { return std::ssize(begins_) - 1; }
  [[nodiscard]] std::int64_t document_begin(std::int64_t document) const override { return begins_[document]; }
  // Token i is i.
  void copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const override {
    ASSERT_LE(begin + count, tokens());
    for (std::int64_t i = 0; i < count; ++i) out[i] = begin + i;
  }

 private:
  Numbers begins_{0};
};

std::unique_ptr<Dataset> packed(const Numbers& lengths, std::int64_t max_length, Packing pack) {
  auto source = std::make_unique<Documents>(lengths);
  const TokenRange range{0, source->tokens()};
  return make_token_dataset("tokens", std::move(source), range, 1000, {.max_length = max_length, .pack = pack},
                            Split::kTrain);
}

TEST(Packing, PutsWholeDocumentsIntoRows) {
  const auto apart = packed({3, 2, 4, 1}, 5, Packing::kApart);  // rows: 3 + 2, 4 + 1
  ASSERT_EQ(apart->size(), 2);
  const Fields fields = apart->read_fields(Numbers{0, 1});
  EXPECT_THAT(names_of(fields), ElementsAre("inputs", "mask", "positions", "targets"));
  EXPECT_THAT(numbers(fields.at("inputs")), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(numbers(fields.at("mask")), ElementsAre(1, 1, 1, 2, 2, 1, 1, 1, 1, 2));
  EXPECT_THAT(numbers(fields.at("positions")), ElementsAre(0, 1, 2, 0, 1, 0, 1, 2, 3, 0));
  constexpr std::int64_t kNone = kNoTarget;
  EXPECT_THAT(numbers(fields.at("targets")), ElementsAre(1, 2, kNone, 4, kNone, 6, 7, 8, kNone, kNone));
  const auto together = packed({3, 2, 4}, 5, Packing::kTogether);
  EXPECT_THAT(names_of(together->read_fields(Numbers{0})), ElementsAre("inputs", "targets"));
  const Fields padded = together->read_fields(Numbers{0, 1});
  EXPECT_THAT(names_of(padded), ElementsAre("inputs", "mask", "targets"));
  EXPECT_THAT(numbers(padded.at("mask")), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 0));
}

// Every token once, with the next one of its document as its target, in rows of at most max_length.
TEST(Packing, KeepsEveryTokenAndTarget) {
  RngStream rng(3);
  for (int round = 0; round < 60; ++round) {
    Numbers lengths(1 + rng.below(30));
    for (auto& length : lengths) length = static_cast<std::int64_t>(rng.below(25));
    lengths.push_back(1);
    const auto max_length = static_cast<std::int64_t>(1 + rng.below(12));
    const auto set = packed(lengths, max_length, round % 2 == 0 ? Packing::kApart : Packing::kTogether);
    std::set<std::int64_t> last;
    std::int64_t tokens = 0;
    for (const std::int64_t length : lengths) {
      tokens += length;
      if (length > 0) last.insert(tokens - 1);
    }
    std::set<std::int64_t> seen;
    for (std::int64_t row = 0; row < set->size(); ++row) {
      const Fields fields = set->read_fields(Numbers{row});
      ASSERT_LE(fields.at("inputs").size(1), max_length);
      const Numbers inputs = numbers(fields.at("inputs")), targets = numbers(fields.at("targets"));
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        EXPECT_TRUE(seen.insert(inputs[i]).second) << "token " << inputs[i] << " twice";
        EXPECT_EQ(targets[i], last.contains(inputs[i]) ? kNoTarget : inputs[i] + 1);
      }
    }
    EXPECT_EQ(std::ssize(seen), tokens);
  }
}

TEST_F(TextSets, TextIsTokenizedAndItsLastTenthIsForTesting) {
  write("all.txt", "a b a b a b a b a hello");  // the last 2 of 23 bytes: lo
  const auto of = [&](Split split, TextOptions wanted) {
    return open_tokenized_text("text", folder_ / "all.txt", wanted, split);
  };
  EXPECT_EQ(of(Split::kTrain, options(9))->size(), 1);
  EXPECT_THAT(numbers(of(Split::kTrain, options(8))->read_fields(Numbers{0}).at("targets")),
              ElementsAre(kB, kA, kB, kA, kB, kA, kB, kA));
  write("all.txt", "a\nb\n\nhello\na\n" + std::string(40, '\n') + "hello\nhello\n");
  TextOptions lines = options(4);
  lines.documents = text::DocumentRule::kLine, lines.pack = Packing::kApart, lines.adds_special_tokens = true;
  EXPECT_THAT(numbers(of(Split::kTrain, lines)->read_fields(Numbers{2}).at("inputs")), ElementsAre(kCls, kHello, kSep));
  const auto test = of(Split::kTest, lines);
  EXPECT_EQ(test->size(), 1);
  EXPECT_THAT(numbers(test->read_fields(Numbers{0}).at("inputs")), ElementsAre(kCls, kHello, kSep));
}

TEST_F(TextSets, TablesWithoutLabelsAreDocuments) {
  write("train.jsonl", "{\"body\": \"a b\"}\n{\"body\": \"\"}\n{\"body\": \"hello\"}\n");
  TextOptions wanted = options(6);
  wanted.label_kind = LabelKind::kNone, wanted.text = "body", wanted.pack = Packing::kApart;
  const auto set = open("jsonl", wanted);
  EXPECT_EQ(set->size(), 1);
  EXPECT_THAT(numbers(set->read_fields(Numbers{0}).at("mask")), ElementsAre(1, 1, 2));
}

TEST_F(TextSets, BatchesOfSimilarLengthsHaveEverySampleOnce) {
  std::string rows = "text,label\n";
  RngStream rng(1);
  for (int i = 0; i < 700; ++i) {
    std::string text = "a";
    for (auto more = rng.below(12); more > 0; --more) text += " b";
    rows += text + ",x\n";
  }
  write("train.csv", rows);
  const auto set = open("csv", options(16));
  const auto read_epoch = [&](bool groups, std::int64_t first, std::set<std::int64_t>& seen) {
    const LoaderOptions options{.batch_size = 5, .threads = 3, .endless = false, .groups_by_length = groups, .seed = 3};
    Loader loader(*set, options, {.batch = first});
    std::int64_t padding = 0;
    while (const auto batch = loader.next()) {
      for (const std::int64_t id : numbers(batch->sample_ids)) EXPECT_TRUE(seen.insert(id).second);
      if (batch->fields.contains("mask")) padding += batch->at("mask").eq(0).sum().item<std::int64_t>();
    }
    return padding;
  };
  std::set<std::int64_t> all, plain, rest;
  EXPECT_LT(10 * read_epoch(true, 0, all), read_epoch(false, 0, plain));
  EXPECT_EQ(all.size(), 700U);
  read_epoch(true, 100, rest);
  EXPECT_EQ(rest.size(), 200U) << "what a resumed run has left";
}

TEST_F(TextSets, MeanWidthIsThatOfAProcessesBatches) {
  std::string rows = "text,label\n";
  for (int i = 0; i < 23; ++i) rows += concat(join(std::vector<std::string>(1 + 7 * i % 10, "a"), " "), ",x\n");
  write("train.csv", rows);
  const auto set = open("csv", options(16));
  for (const bool groups : {false, true}) {
    for (const std::int64_t process : {0, 1}) {
      const LoaderOptions wanted{
          .batch_size = 6, .share = {process, 1, 2}, .endless = false, .groups_by_length = groups, .seed = 3};
      Loader loader(*set, wanted);
      double width = 0, batches = 0;
      while (const auto batch = loader.next()) width += static_cast<double>(batch->at("inputs").size(1)), ++batches;
      EXPECT_DOUBLE_EQ(mean_width(*set, wanted), width / batches);
    }
  }
}

}  // namespace
}  // namespace sluice::data
