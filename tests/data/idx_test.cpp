#include "data/idx.h"

#include <gmock/gmock.h>

#include "core/error.h"
#include "core/rng.h"
#include "data/file.h"
#include "data/idx_files.h"
#include "support/files.h"

namespace sluice::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const Bytes kPixels = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
const Bytes kImages = images_bytes(2, 2, 3, kPixels);
const Bytes kLabels = labels_bytes({3, 0, 9});

std::string error_of(const Bytes& bytes, IdxKind kind) {
  try {
    static_cast<void>(parse_idx(bytes, "images.gz", kind));
  } catch (const DataError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kData);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}
std::string image_error(const Bytes& bytes) { return error_of(bytes, IdxKind::kImages); }

TEST(File, TooManyOpenFilesAreNoFaultOfTheFile) {
  const sluice::test::TempDir dir;
  sluice::test::spill(dir / "a", "x");
  EXPECT_THAT(sluice::test::error_without_files([&] { return read_bytes(dir / "a", 1); }),
              AllOf(HasSubstr("a cannot be read"), HasSubstr("ulimit -n")));
}

TEST(Idx, ReadsImagesAndLabelsPlainAndGzip) {
  for (const auto& bytes : {kImages, gzip(kImages)}) {
    const auto images = parse_idx(bytes, "f", IdxKind::kImages);
    EXPECT_THAT(images.dims, ElementsAre(2, 2, 3));
    EXPECT_EQ(images.values, kPixels);
  }
  for (const auto& bytes : {kLabels, gzip(kLabels)}) {
    const auto labels = parse_idx(bytes, "f", IdxKind::kLabels);
    EXPECT_THAT(labels.dims, ElementsAre(3));
    EXPECT_THAT(labels.values, ElementsAre(3, 0, 9));
  }
}

TEST(Idx, ReadsAGzipFileOfSeveralMembers) {
  Bytes bytes = gzip({kImages.begin(), kImages.begin() + 7});
  const Bytes second = gzip({kImages.begin() + 7, kImages.end()});
  bytes.insert(bytes.end(), second.begin(), second.end());
  EXPECT_EQ(parse_idx(bytes, "f", IdxKind::kImages).values, kPixels);
}

TEST(Idx, AWrongMagicIsNamed) {
  EXPECT_THAT(image_error(kLabels), AllOf(HasSubstr("images.gz: byte 0: expected magic 0x00000803 (images)"),
                                          HasSubstr("found 0x00000801 (a file of labels)"), HasSubstr("data.path")));
  EXPECT_THAT(error_of(kImages, IdxKind::kLabels), HasSubstr("found 0x00000803 (a file of images)"));
  EXPECT_THAT(image_error(idx_bytes(0x00000D03, {1, 1, 1}, {0, 0, 0, 0})), HasSubstr("found 0x00000d03"));
  EXPECT_THAT(image_error({'<', 'h', 't', 'm', 'l', '>'}), HasSubstr("found 0x3c68746d"));
}

TEST(Idx, ATruncatedHeaderIsNamedAtEveryLength) {
  for (std::size_t length = 0; length < 16; ++length) {
    const Bytes cut(kImages.begin(), kImages.begin() + static_cast<std::ptrdiff_t>(length));
    const auto text = image_error(cut);
    EXPECT_THAT(text, HasSubstr(concat("byte ", length / 4 * 4, ": the header ends early")));
    EXPECT_THAT(text, HasSubstr(concat("found ", length % 4)));
    EXPECT_EQ(image_error(gzip(cut)), text);
  }
}

TEST(Idx, TruncatedDataIsNamed) {
  const Bytes cut(kImages.begin(), kImages.end() - 5);
  EXPECT_THAT(image_error(cut), HasSubstr("byte 16: the data ends early: expected 12 bytes, found at most 7"));
  EXPECT_THAT(image_error(gzip(cut)), HasSubstr("byte 16: the data ends early: expected 12 bytes, found 7"));
}

TEST(Idx, TrailingBytesAreNamed) {
  Bytes longer = kImages;
  longer.push_back(0);
  EXPECT_THAT(image_error(longer), HasSubstr("byte 28: more bytes follow the 12 bytes"));
  EXPECT_THAT(image_error(gzip(longer)), HasSubstr("byte 28: more bytes follow"));
  Bytes after_gzip = gzip(kImages);
  after_gzip.push_back(7);
  EXPECT_THAT(image_error(after_gzip), HasSubstr("but 1 more bytes follow"));
}

TEST(Idx, ImpossibleSizesAreRejectedBeforeAllocating) {
  EXPECT_THAT(image_error(images_bytes(~0U, ~0U, ~0U, {})),
              HasSubstr("byte 4: the count is 4294967295, expected 1 to"));
  EXPECT_THAT(image_error(images_bytes(1, 70000, 1, {})), HasSubstr("byte 8: the height is 70000, expected 1 to"));
  EXPECT_THAT(image_error(images_bytes(1U << 20, 1, 1U << 12, {})),
              HasSubstr("byte 12: the width is 4096, expected 1 to"));
  EXPECT_THAT(image_error(images_bytes(0, 28, 28, {})), HasSubstr("byte 4: the count is 0, expected 1 to"));
  EXPECT_THAT(image_error(images_bytes(1U << 20, 32, 32, {})), HasSubstr("expected 1073741824 bytes, found at most 0"));
  EXPECT_THAT(image_error(gzip(images_bytes(1U << 20, 32, 32, {}))),
              HasSubstr("expected 1073741824 bytes, found at most"));
}

// A million zeros pack into a thousand bytes. Only the announced bytes and one more are unpacked.
TEST(Idx, AGzipBombIsNotUnpacked) {
  EXPECT_THAT(image_error(gzip(images_bytes(1, 1, 1, Bytes(50'000'000)))), HasSubstr("byte 17: more bytes follow"));
}

TEST(Idx, CorruptGzipIsNamed) {
  const Bytes whole = gzip(kImages);
  EXPECT_THAT(image_error({whole.begin(), whole.end() - 3}), HasSubstr("the gzip data ends early, at byte"));
  Bytes wrong_sum = whole;
  wrong_sum[whole.size() - 8] ^= 1;  // the CRC
  EXPECT_THAT(image_error(wrong_sum), AllOf(HasSubstr("corrupt gzip data at byte"), HasSubstr("incorrect data check")));
  Bytes wrong_block = whole;
  wrong_block[10] = 0xff;  // no such block type
  EXPECT_THAT(image_error(wrong_block), AllOf(HasSubstr("corrupt gzip data"), HasSubstr("invalid block type")));
}

TEST(Idx, RandomDamageGivesADataErrorOrAnArrayOfTheAnnouncedSize) {
  RngStream rng(hash_name("idx damage"));
  const std::vector<Bytes> seeds = {kImages, gzip(kImages)};
  int parsed = 0, refused = 0;
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes = seeds[rng.below(seeds.size())];
    for (std::uint64_t edits = 1 + rng.below(3); edits > 0; --edits) {
      bytes[rng.below(bytes.size())] = static_cast<std::uint8_t>(rng());
    }
    if (rng.below(4) == 0) bytes.resize(rng.below(bytes.size() + 8));
    try {
      const auto array = parse_idx(bytes, "damaged", IdxKind::kImages);
      ASSERT_EQ(static_cast<std::size_t>(array.dims.at(0) * array.dims.at(1) * array.dims.at(2)), array.values.size());
      ++parsed;
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(parsed, 100);  // damage in the pixels of a plain file is still a file
}

TEST(Idx, ReadsFromDiskAndNamesWhatCannotBeRead) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "images";
  write_file(file, kImages);
  EXPECT_EQ(read_idx(file, IdxKind::kImages).values, kPixels);
  EXPECT_THAT([&] { static_cast<void>(read_idx(folder.path() / "none", IdxKind::kImages)); },
              testing::ThrowsMessage<DataError>(AllOf(HasSubstr("none"), HasSubstr("No such file"))));
  EXPECT_THAT([&] { static_cast<void>(read_idx(folder.path(), IdxKind::kImages)); },
              testing::ThrowsMessage<DataError>(HasSubstr("cannot be read")));
}

}  // namespace
}  // namespace sluice::data
