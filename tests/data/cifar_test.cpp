#include "data/cifar.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "core/error.h"
#include "data/file.h"
#include "data/idx_files.h"

namespace sluice::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::size_t kPixels = 3072;

// Records with these label bytes each; pixel i of record r is (7 r + i) % 251.
Bytes records(const std::vector<Bytes>& labels) {
  Bytes out;
  for (std::size_t r = 0; r < labels.size(); ++r) {
    out.insert(out.end(), labels[r].begin(), labels[r].end());
    for (std::size_t i = 0; i < kPixels; ++i) out.push_back(static_cast<std::uint8_t>((7 * r + i) % 251));
  }
  return out;
}

// Two records in each training file: labels 0 1, 1 2, 2 3, ...; three in the test file.
void write_cifar10(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  for (std::uint8_t k = 0; k < 5; ++k) {
    const Bytes labels{k, static_cast<std::uint8_t>(k + 1)};
    write_file(folder / concat("data_batch_", k + 1, ".bin"), records({{labels[0]}, {labels[1]}}));
  }
  write_file(folder / "test_batch.bin", records({{9}, {0}, {5}}));
}

void write_cifar100(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  write_file(folder / "train.bin", records({{19, 99}, {0, 3}}));
  write_file(folder / "test.bin", records({{4, 20}}));
}

auto opening(const DatasetOptions& options, Split split = Split::kTrain) {
  return [=] { static_cast<void>(open_dataset(options, split)); };
}

TEST(Cifar, TheTenClassesAreReadByteForByteInTheOrderOfTheFiles) {
  const TemporaryFolder folder;
  write_cifar10(folder.path());
  const auto train = open_dataset({.name = "cifar10", .path = folder.path()}, Split::kTrain);
  const auto& info = train->info();
  EXPECT_EQ(info.name, "cifar10");
  EXPECT_THAT((std::array{info.channels, info.height, info.width, info.classes}), ElementsAre(3, 32, 32, 10));
  ASSERT_EQ(train->size(), 10);
  std::vector<std::int64_t> targets;
  for (std::int64_t i = 0; i < train->size(); ++i) targets.push_back(train->target(i));
  EXPECT_THAT(targets, ElementsAre(0, 1, 1, 2, 2, 3, 3, 4, 4, 5));
  Bytes pixels(kPixels), expected(kPixels);
  train->read(9, pixels);
  for (std::size_t i = 0; i < kPixels; ++i) expected[i] = static_cast<std::uint8_t>((7 + i) % 251);
  EXPECT_EQ(pixels, expected);
  EXPECT_EQ(open_dataset({.name = "cifar10", .path = folder.path()}, Split::kTest)->size(), 3);
  EXPECT_THROW(train->read(10, pixels), BugError);
  EXPECT_THROW(static_cast<void>(train->target(-1)), BugError);
}

TEST(Cifar, TheTargetOfTheHundredClassesIsTheFineLabel) {
  const TemporaryFolder folder;
  write_cifar100(folder.path());
  const auto train = open_dataset({.name = "cifar100", .path = folder.path()}, Split::kTrain);
  EXPECT_EQ(train->info().classes, 100);
  ASSERT_EQ(train->size(), 2);
  EXPECT_EQ(train->target(0), 99);
  EXPECT_EQ(train->target(1), 3);
  Bytes pixels(kPixels);
  train->read(1, pixels);
  EXPECT_EQ(pixels[0], 7);
  EXPECT_EQ(open_dataset({.name = "cifar100", .path = folder.path()}, Split::kTest)->target(0), 20);
}

TEST(Cifar, TheFolderOfTheArchiveIsFoundInsideThePath) {
  const TemporaryFolder folder;
  write_cifar10(folder.path() / "cifar-10-batches-bin");
  write_cifar100(folder.path() / "cifar-100-binary");
  EXPECT_EQ(open_dataset({.name = "cifar10", .path = folder.path()}, Split::kTrain)->size(), 10);
  EXPECT_EQ(open_dataset({.name = "cifar100", .path = folder.path()}, Split::kTrain)->size(), 2);
}

TEST(Cifar, MissingFilesGiveThePathAndAnAction) {
  const TemporaryFolder folder;
  EXPECT_THAT(opening({.name = "cifar10", .path = folder.path()}),
              ThrowsMessage<DataError>(AllOf(HasSubstr("data_batch_1.bin is neither in " + folder.path().native()),
                                             HasSubstr((folder.path() / "cifar-10-batches-bin").native()),
                                             HasSubstr("cifar-10-binary.tar.gz"))));
  EXPECT_THAT(opening({.name = "cifar100", .path = folder.path()}, Split::kTest),
              ThrowsMessage<DataError>(AllOf(HasSubstr("test.bin"), HasSubstr("cifar-100-binary.tar.gz"))));
  EXPECT_THAT(opening({.name = "cifar10"}), ThrowsMessage<ConfigError>(HasSubstr("data.path is empty")));
  write_cifar10(folder.path());
  std::filesystem::remove(folder.path() / "data_batch_4.bin");
  EXPECT_THAT(opening({.name = "cifar10", .path = folder.path()}),
              ThrowsMessage<DataError>(AllOf(HasSubstr("data_batch_4.bin: the file cannot be read"),
                                             HasSubstr("point data.path at an intact copy"))));
}

TEST(ReadBytes, AFileLargerThanExpectedIsRefusedBeforeItIsRead) {
  const TemporaryFolder folder;
  write_file(folder.path() / "four", {1, 2, 3, 4});
  EXPECT_EQ(read_bytes(folder.path() / "four", 4), (Bytes{1, 2, 3, 4}));
  EXPECT_THAT([&] { static_cast<void>(read_bytes(folder.path() / "four", 3)); },
              ThrowsMessage<DataError>(HasSubstr("four: found 4 bytes, expected at most 3")));
}

TEST(Cifar, AFileCutOffIsNamedWithItsSize) {
  const TemporaryFolder folder;
  write_cifar10(folder.path());
  std::filesystem::resize_file(folder.path() / "data_batch_3.bin", 2 * 3073 - 1);
  EXPECT_THAT(
      opening({.name = "cifar10", .path = folder.path()}),
      ThrowsMessage<DataError>(HasSubstr("data_batch_3.bin: found 6145 bytes, expected a positive multiple of 3073")));
  std::filesystem::resize_file(folder.path() / "test_batch.bin", 0);
  EXPECT_THAT(opening({.name = "cifar10", .path = folder.path()}, Split::kTest),
              ThrowsMessage<DataError>(HasSubstr("test_batch.bin: found 0 bytes")));
}

TEST(Cifar, ALabelOutOfRangeIsNamed) {
  const TemporaryFolder folder;
  write_cifar10(folder.path());
  write_file(folder.path() / "data_batch_2.bin", records({{3}, {10}}));
  EXPECT_THAT(
      opening({.name = "cifar10", .path = folder.path()}),
      ThrowsMessage<DataError>(HasSubstr("data_batch_2.bin: byte 3073: the label of record 1 is 10, expected 0 to 9")));
  write_file(folder.path() / "train.bin", records({{19, 100}}));
  EXPECT_THAT(opening({.name = "cifar100", .path = folder.path()}),
              ThrowsMessage<DataError>(HasSubstr("byte 1: the label of record 0 is 100, expected 0 to 99")));
  write_file(folder.path() / "train.bin", records({{20, 5}}));
  EXPECT_THAT(opening({.name = "cifar100", .path = folder.path()}),
              ThrowsMessage<DataError>(HasSubstr("byte 0: the label of record 0 is 20, expected 0 to 19")));
}

TEST(Cifar, TheTrueRecordsOfTheAuthors) {
  const char* source = std::getenv("SLUICE_SOURCE_DIR");
  const auto sample = std::filesystem::path(source == nullptr ? "." : source) / "../shared/data/cifar-10-exact" /
                      "data_batch_1.first1000.bin";
  if (!std::filesystem::exists(sample)) GTEST_SKIP() << sample << " is not there";
  const TemporaryFolder folder;
  write_cifar10(folder.path());
  std::filesystem::copy_file(sample, folder.path() / "data_batch_1.bin",
                             std::filesystem::copy_options::overwrite_existing);
  const auto train = open_dataset({.name = "cifar10", .path = folder.path()}, Split::kTrain);
  EXPECT_EQ(train->size(), 1008);
  EXPECT_EQ(train->target(0), 6);
  EXPECT_EQ(train->target(1), 9);
  Bytes pixels(kPixels);
  train->read(0, pixels);
  EXPECT_THAT(std::span(pixels).first(8), ElementsAre(0x3b, 0x2b, 0x32, 0x44, 0x62, 0x77, 0x8b, 0x91));
}

}  // namespace
}  // namespace sluice::data
