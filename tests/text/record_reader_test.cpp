#include "text/record_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/error.h"
#include "support/files.h"
#include "text/document_text.h"

namespace sluice::text {
namespace {

using test::spill;
using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;

// The records of a file; at each it is opened again and goes on, which must not change them.
std::vector<std::string> records_of(const std::filesystem::path& file, RecordKind kind) {
  std::vector<std::string> records;
  std::uint64_t offset = 0;
  while (true) {
    RecordReader reader(file, kind);
    if (!records.empty()) reader.seek(offset, records.size());
    std::string record;
    if (!reader.next(record)) return records;
    records.push_back(record);
    offset = reader.offset();
    EXPECT_EQ(reader.records(), records.size());
  }
}

std::vector<std::string> texts_of(const std::filesystem::path& file, DocumentRule rule,
                                  const std::string& column = "text") {
  DocumentText documents(file, rule, column);
  RecordReader reader(file, documents.kind());
  std::vector<std::string> texts;
  for (std::string record; reader.next(record); record.clear()) {
    if (documents.has_head() && reader.records() == 1) {
      documents.read_head(record);
      continue;
    }
    std::string scratch;
    const std::string_view text = documents.text_of(record, reader.records() - 1, scratch);
    if (!text.empty()) texts.emplace_back(text);
  }
  return texts;
}

class Records : public testing::Test {
 protected:
  std::filesystem::path file(std::string_view name, std::string_view text) {
    spill(folder_ / name, text);
    return folder_ / name;
  }
  TempDir folder_;
};

TEST_F(Records, Lines) {
  EXPECT_THAT(records_of(file("a", "one\n\ntwo\r\n three"), RecordKind::kLine),
              ElementsAre("one", "", "two\r", " three"));
  EXPECT_THAT(texts_of(file("a", "one\n\n \t\ntwo\r\n three"), DocumentRule::kLine),
              ElementsAre("one", "two", " three"));
  EXPECT_THAT(texts_of(file("a",
                            "\xef\xbb\xbf"
                            "one\n"),
                       DocumentRule::kLine),
              ElementsAre("one"));
  EXPECT_THAT(texts_of(file("a", ""), DocumentRule::kLine), ElementsAre());
}

TEST_F(Records, Paragraphs) {
  EXPECT_THAT(texts_of(file("a", "\n\none\ntwo\n\n \r\n\nthree\r\nfour\n"), DocumentRule::kBlank),
              ElementsAre("one\ntwo", "three\r\nfour"));
  EXPECT_THAT(texts_of(file("a", "one\n\ntwo"), DocumentRule::kBlank), ElementsAre("one", "two"));
}

TEST_F(Records, WholeFiles) {
  EXPECT_THAT(texts_of(file("a", "one\n\ntwo\n"), DocumentRule::kFile), ElementsAre("one\n\ntwo\n"));
}

TEST_F(Records, BlocksDoNotShow) {
  std::string text;
  std::vector<std::string> lines;
  for (int i = 0; i < 30; ++i) {
    lines.emplace_back(static_cast<std::size_t>(i) * 9973, static_cast<char>('a' + i % 26));
    text += lines.back() + "\n";
  }
  EXPECT_EQ(records_of(file("a", text), RecordKind::kLine), lines);
  EXPECT_EQ(records_of(file("a", text), RecordKind::kCsvRow), lines);
}

TEST_F(Records, CsvAsPythonReadsIt) {
  const auto csv = file("a.csv", "id,text\r\n1,\"a, \"\"b\"\"\nc\"\r\n2,plain \"quotes\"\n\n3,\"x\"y\n4,\n5,last");
  EXPECT_THAT(texts_of(csv, DocumentRule::kFile), ElementsAre("a, \"b\"\nc", "plain \"quotes\"", "xy", "last"));
  EXPECT_THAT(records_of(csv, RecordKind::kCsvRow), testing::SizeIs(7));
  EXPECT_THAT(texts_of(file("a.tsv", "sentence\tlabel\nit's, \"fine\"\t1\n"), DocumentRule::kFile, "sentence"),
              ElementsAre("it's, \"fine\""));
  EXPECT_THAT(texts_of(file("a.tsv", "id\ttext\n1\t\"open\n2\t\"both\"\n"), DocumentRule::kFile),
              ElementsAre("\"open", "\"both\""))
      << "TSV has no quotes";
  EXPECT_THAT(test::error_of<DataError>([&] { return texts_of(csv, DocumentRule::kFile, "body"); }),
              HasSubstr("a.csv: has no column \"body\", but \"id\", \"text\"; choose one with --column"));
  EXPECT_THAT(
      test::error_of<DataError>([&] { return texts_of(file("b.csv", "id,text\n1,x\n2\n"), DocumentRule::kFile); }),
      HasSubstr("b.csv: row 3 has 1 column, but the first row names 2"));
  EXPECT_THAT(
      test::error_of<DataError>([&] { return texts_of(file("b.csv", "id,text\n1,a, b\n"), DocumentRule::kFile); }),
      HasSubstr("b.csv: row 2 has 3 columns"));
}

TEST_F(Records, JsonLines) {
  EXPECT_THAT(
      texts_of(file("a.jsonl", "{\"text\": \"a\\nb\"}\n\n{\"id\": 1, \"text\": \"\"}\r\n{\"text\": \"\\u00e9\"}"),
               DocumentRule::kFile),
      ElementsAre("a\nb", "\xc3\xa9"));
  const auto refusal = [&](std::string_view text) {
    return test::error_of<DataError>([&] { return texts_of(file("a.jsonl", text), DocumentRule::kFile); });
  };
  EXPECT_THAT(refusal("{\"text\": \"a\"}\n{\"text\": \"b}\n"), HasSubstr("a.jsonl: line 2 is not a JSON object"));
  EXPECT_THAT(refusal("[1]\n"), HasSubstr("line 1 is not a JSON object"));
  EXPECT_THAT(refusal("{\"text\": \"\xff\"}\n"), HasSubstr("line 1 is not a JSON object"));
  EXPECT_THAT(refusal("{\"body\": \"a\"}\n"), HasSubstr("line 1 has no \"text\"; choose the column with --column"));
  EXPECT_THAT(refusal("{\"text\": 3}\n"), HasSubstr("line 1 has no text as \"text\""));
}

TEST_F(Records, WhatIsTooLongIsRefusedBeforeItIsRead) {
  const auto huge = file("a.txt", "short\n");
  std::filesystem::resize_file(huge, std::uint64_t{10} << 30);  // sparse
  const auto refusal = [&](RecordKind kind) {
    return test::error_of<DataError>([&] { return records_of(huge, kind).size(); });
  };
  EXPECT_THAT(refusal(RecordKind::kLine), HasSubstr("a.txt: line 2 has more than 64.0 MiB"));
  EXPECT_THAT(refusal(RecordKind::kParagraph), HasSubstr("paragraph 1 has more than"));
  EXPECT_THAT(refusal(RecordKind::kFile), HasSubstr("--documents line"));
  EXPECT_THAT(refusal(RecordKind::kCsvRow), HasSubstr("row 2"));
}

TEST_F(Records, OnlyRegularFiles) {
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  for (const auto& path : {folder_ / "fifo", folder_.path()}) {
    EXPECT_THAT(test::error_of<DataError>([&] { return RecordReader(path, RecordKind::kLine).bytes(); }),
                HasSubstr("is not a regular file"));
  }
  EXPECT_THAT(test::error_of<DataError>([&] { return RecordReader(folder_ / "none", RecordKind::kLine).bytes(); }),
              HasSubstr("No such file"));
}

}  // namespace
}  // namespace sluice::text
