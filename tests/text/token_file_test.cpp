#include "text/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "core/error.h"
#include "support/files.h"
#include "text/token_writer.h"

namespace sluice::text {
namespace {

using test::spill;
using test::TempDir;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kDigest(32, 'a');

template <typename Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

TokenFileLabel label(std::uint64_t vocabulary) {
  return {.vocabulary = vocabulary, .tokenizer = kDigest, .source = std::string(32, 'b')};
}

void write(const std::filesystem::path& file, std::uint64_t vocabulary, const std::vector<TokenId>& ids,
           const std::vector<std::uint64_t>& lengths) {
  TokenWriter writer(file, label(vocabulary));
  writer.append(ids, lengths);
  writer.finish();
}

std::vector<std::int64_t> all_of(const TokenFile& file) {
  std::vector<std::int64_t> ids(file.tokens());
  file.copy(0, ids.size(), ids.data());
  return ids;
}

std::vector<std::uint64_t> begins_of(const TokenFile& file) {
  std::vector<std::uint64_t> begins;
  for (std::uint64_t i = 0; i <= file.documents(); ++i) begins.push_back(file.document_begin(i));
  return begins;
}

std::string refusal(const std::filesystem::path& file, std::uint64_t vocabulary = 0) {
  const std::string text = test::error_of<DataError>([&] {
    const TokenFile tokens(file, vocabulary);
    tokens.verify();
    return all_of(tokens).size();
  });
  EXPECT_THAT(text, AllOf(HasSubstr(file.filename().string()), HasSubstr("; "), Not(HasSubstr("\n"))));
  return text;
}

TEST(TokenFile, ReadsWhatIsWritten) {
  const TempDir folder;
  for (const std::uint64_t vocabulary : {65536, 65537}) {
    const auto file = folder / "a.tokens";
    std::filesystem::remove(file);
    write(file, vocabulary, {1, 65535, 3, 4, 5}, {2, 0, 3});
    const TokenFile tokens(file);
    tokens.verify();
    EXPECT_EQ(tokens.layout().width, vocabulary == 65536 ? 2 : 4);
    EXPECT_THAT(all_of(tokens), ElementsAre(1, 65535, 3, 4, 5));
    EXPECT_THAT(begins_of(tokens), ElementsAre(0, 2, 2, 5));
    EXPECT_EQ(tokens.token(1), 65535);
    EXPECT_EQ(tokens.layout().vocabulary, vocabulary);
    EXPECT_EQ(tokens.layout().tokenizer, kDigest);
    EXPECT_THAT(test::names_in(folder.path()), ElementsAre("a.tokens"));
  }
}

// NumPy's memmap(file, "<u2", offset=136) reads the ids.
TEST(TokenFile, IdsFollowAHeaderOf136Bytes) {
  const TempDir folder;
  write(folder / "a.tokens", 100, {7, 8, 9}, {3});
  const std::string bytes = test::slurp(folder / "a.tokens");
  EXPECT_EQ(bytes.size(), 136 + 8 + 8);
  EXPECT_EQ(bytes.substr(136, 6), bytes_of<std::uint16_t>({7, 8, 9}));
}

TEST(TokenFile, EveryByteIsChecked) {
  const TempDir folder;
  const auto file = folder / "a.tokens";
  write(file, 100, {1, 2, 3}, {1, 2});
  const std::string whole = test::slurp(file);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    spill(file, damaged);
    refusal(file);
    spill(file, whole.substr(0, i));
    refusal(file);
  }
  spill(file, whole + "x");
  EXPECT_THAT(refusal(file), HasSubstr("is too long: it has 161 bytes, expected 160"));
}

TEST(TokenFile, IdsMustFitTheVocabulary) {
  const TempDir folder;
  write(folder / "a.tokens", 100, {1, 99}, {2});
  EXPECT_THAT(refusal(folder / "a.tokens", 99), HasSubstr("a vocabulary of 100 ids, more than 99"));
  EXPECT_EQ(TokenFile(folder / "a.tokens", 101).token(1), 99);
  spill(folder / "b.bin", bytes_of<std::uint16_t>({1, 50256, 50257}));
  EXPECT_THAT(refusal(folder / "b.bin", 50257), HasSubstr("token 2 is 50257, but the vocabulary has 50257 ids"));
  EXPECT_EQ(TokenFile(folder / "b.bin", 50257).token(1), 50256);
}

TEST(TokenFile, ReadsNanoGptAndLlmC) {
  const TempDir folder;
  spill(folder / "nano.bin", bytes_of<std::uint16_t>({5, 65535, 7}));
  const TokenFile nano(folder / "nano.bin");
  EXPECT_THAT(all_of(nano), ElementsAre(5, 65535, 7));
  EXPECT_THAT(begins_of(nano), ElementsAre(0, 3));
  spill(folder / "odd.bin", "abc");
  EXPECT_THAT(refusal(folder / "odd.bin"), HasSubstr("3 bytes are not a whole number of uint16 tokens"));
  std::vector<std::int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 2;
  spill(folder / "gpt2.bin", bytes_of(header) + bytes_of<std::uint16_t>({50256, 1}));
  EXPECT_THAT(all_of(TokenFile(folder / "gpt2.bin")), ElementsAre(50256, 1));
  spill(folder / "short.bin", bytes_of(header) + bytes_of<std::uint16_t>({50256}));
  EXPECT_THAT(refusal(folder / "short.bin"), HasSubstr("is cut short: it has 1026 bytes, expected 1028"));
  header[1] = 2;
  spill(folder / "new.bin", bytes_of(header));
  EXPECT_THAT(refusal(folder / "new.bin"), HasSubstr("version 2 of llm.c's format, expected 1"));
  header[0] = 20240801;
  header[1] = 7;
  spill(folder / "llama3.bin", bytes_of(header) + bytes_of<std::uint32_t>({128000, 1}));
  EXPECT_THAT(all_of(TokenFile(folder / "llama3.bin")), ElementsAre(128000, 1));
}

struct Index {
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::vector<std::int32_t> sizes = {2, 1, 3};
  std::vector<std::int64_t> offsets = {0, 4, 6};
  std::vector<std::int64_t> documents = {0, 2, 2, 3};

  void save(const std::filesystem::path& file) const {
    spill(file, std::string("MMIDIDX\0\0", 9) + bytes_of<std::uint64_t>({version}) + static_cast<char>(type) +
                    bytes_of<std::uint64_t>({sizes.size(), documents.size()}) + bytes_of(sizes) + bytes_of(offsets) +
                    bytes_of(documents));
  }
};

TEST(TokenFile, ReadsMegatron) {
  const TempDir folder;
  spill(folder / "m.bin", bytes_of<std::uint16_t>({1, 2, 3, 4, 5, 6}));
  Index{}.save(folder / "m.idx");
  const TokenFile tokens(folder / "m.bin");
  EXPECT_THAT(all_of(tokens), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(begins_of(tokens), ElementsAre(0, 3, 3, 6));
  spill(folder / "wide.bin", bytes_of<std::int32_t>({1, 70000, 3, 4, 5, 6}));
  Index{.type = 4, .offsets = {0, 8, 12}}.save(folder / "wide.idx");
  EXPECT_EQ(TokenFile(folder / "wide.bin").token(1), 70000);
  EXPECT_THAT(begins_of(TokenFile(folder / "wide.bin")), ElementsAre(0, 3, 3, 6));
  EXPECT_THAT(refusal(folder / "m.idx"), HasSubstr("give the .bin file beside it"));
}

TEST(TokenFile, AnIndexOfMegatronMustFit) {
  const TempDir folder;
  const auto file = folder / "m.bin";
  spill(file, bytes_of<std::uint16_t>({1, 2, 3, 4, 5, 6}));
  const auto refusal_of = [&](const Index& index) {
    index.save(folder / "m.idx");
    return refusal(file);
  };
  EXPECT_THAT(refusal_of({.version = 2}), HasSubstr("version 2, expected 1"));
  EXPECT_THAT(refusal_of({.type = 6}), HasSubstr("type 6"));
  EXPECT_THAT(refusal_of({.sizes = {2, 1, 4}}), HasSubstr("the index has 7 tokens, the file 6"));
  EXPECT_THAT(refusal_of({.sizes = {2, -1, 5}}), HasSubstr("sequence 1"));
  EXPECT_THAT(refusal_of({.offsets = {0, 4, 8}}), HasSubstr("sequence 2 does not begin where"));
  EXPECT_THAT(refusal_of({.documents = {0, 2, 4}}), HasSubstr("document 2 begins at sequence 4 of 3"));
  EXPECT_THAT(refusal_of({.documents = {0, 2, 1, 3}}), HasSubstr("document 2"));
  EXPECT_THAT(refusal_of({.documents = {0, 2}}), HasSubstr("document 1"));
  EXPECT_THAT(refusal_of({.documents = {1, 3}}), HasSubstr("document 0"));
  Index{}.save(folder / "m.idx");
  const std::string whole = test::slurp(folder / "m.idx");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    spill(folder / "m.idx", whole.substr(0, size));
    refusal(file);
  }
}

TEST(TokenFile, ForeignFilesAreRefused) {
  const TempDir folder;
  spill(folder / "a.txt", "Some text");
  EXPECT_THAT(refusal(folder / "a.txt"), HasSubstr("is not a token file"));
  EXPECT_THAT(refusal(folder / "missing.tokens"), HasSubstr("cannot be read: No such file"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("is not a regular file"));
  write(folder / "b.tokens", 100, {1}, {1});
  std::string newer = test::slurp(folder / "b.tokens");
  newer[8] = 2;
  spill(folder / "b.tokens", newer);
  EXPECT_THAT(refusal(folder / "b.tokens"), HasSubstr("version 2 of the format, expected 1"));
}

TEST(TokenWriter, GoesOnWhereItWasSaved) {
  const TempDir folder;
  const auto file = folder / "a.tokens";
  write(folder / "whole.tokens", 100, {1, 2, 3, 4, 5}, {2, 3});
  {
    TokenWriter writer(file, label(100));
    writer.append(std::vector<TokenId>{1, 2}, std::vector<std::uint64_t>{2});
    writer.save(17, 3);
    writer.append(std::vector<TokenId>{9, 9}, std::vector<std::uint64_t>{1, 1});  // lost
  }
  {
    TokenWriter writer(file, label(100));
    EXPECT_EQ(writer.progress().input_bytes, 17);
    EXPECT_EQ(writer.progress().records, 3);
    EXPECT_EQ(writer.progress().documents, 1);
    writer.append(std::vector<TokenId>{3, 4, 5}, std::vector<std::uint64_t>{3});
    writer.finish();
  }
  EXPECT_EQ(test::slurp(file), test::slurp(folder / "whole.tokens"));
  EXPECT_THAT(test::names_in(folder.path()), ElementsAre("a.tokens", "whole.tokens"));
}

TEST(TokenWriter, BeginsAgainForAnotherTextOrDamagedFiles) {
  const TempDir folder;
  const auto file = folder / "a.tokens";
  const auto begin = [&] {
    TokenWriter writer(file, label(100));
    writer.append(std::vector<TokenId>{1, 2}, std::vector<std::uint64_t>{2});
    writer.save(17, 3);
  };
  begin();
  TokenFileLabel other = label(100);
  other.changed = 1;
  EXPECT_EQ(TokenWriter(file, other).progress().input_bytes, 0);
  begin();
  other = label(100);
  other.source = kDigest;
  EXPECT_EQ(TokenWriter(file, other).progress().input_bytes, 0);
  begin();
  spill(folder / "a.tokens.part", "x");
  EXPECT_EQ(TokenWriter(file, label(100)).progress().input_bytes, 0);
  begin();
  spill(folder / "a.tokens.progress", "{");
  EXPECT_EQ(TokenWriter(file, label(100)).progress().input_bytes, 0);
}

}  // namespace
}  // namespace sluice::text
