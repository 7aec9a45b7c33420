#include "storage/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "storage/checksum.h"
#include "support/files.h"

namespace sluice::storage {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(AtomicFile, TheOldVersionStaysUntilCommit) {
  const test::TempDir dir;
  write_text_atomically(dir / "a.txt", "old");
  {
    AtomicFile file(dir / "a.txt");
    file.write(std::as_bytes(std::span("new", 3)));
    EXPECT_EQ(test::slurp(dir / "a.txt"), "old");
    file.commit();
  }
  EXPECT_EQ(test::slurp(dir / "a.txt"), "new");
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("a.txt"));
}

TEST(AtomicFile, WithoutCommitNothingIsLeft) {
  const test::TempDir dir;
  { AtomicFile file(dir / "a.txt"); }
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre());
}

TEST(AtomicFile, FollowsALinkInsteadOfReplacingIt) {
  const test::TempDir dir;
  test::spill(dir / "real.txt", "old");
  std::filesystem::create_symlink(dir / "real.txt", dir / "link.txt");
  write_text_atomically(dir / "link.txt", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link.txt"));
  EXPECT_EQ(test::slurp(dir / "real.txt"), "new");
}

// As root, a rename would replace the device node of the whole machine.
TEST(AtomicFile, NeverReplacesADevice) {
  const auto text = test::error_of<StorageError>([] { write_text_atomically("/dev/null", "x"); });
  EXPECT_THAT(text, HasSubstr("/dev/null"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(Storage, ErrorsNameThePathAndTheSizesAndSayWhatToDo) {
  const test::TempDir dir;
  const auto full = test::error_of<StorageError>([&] { throw_storage_error(ENOSPC, "write", dir / "x", 3U << 20); });
  EXPECT_THAT(full, HasSubstr((dir / "x").string()));
  EXPECT_THAT(full, HasSubstr("needs 3.0 MiB, "));
  EXPECT_THAT(full, HasSubstr(" free; free space"));
  const auto read_only = test::error_of<StorageError>([&] { throw_storage_error(EROFS, "write", dir / "x"); });
  EXPECT_THAT(read_only, HasSubstr("choose a place that can be written"));
}

TEST(Storage, WritingIntoAMissingFolderIsAStorageError) {
  const test::TempDir dir;
  const auto text = test::error_of<StorageError>([&] { write_text_atomically(dir / "no" / "a.txt", "x"); });
  EXPECT_THAT(text, AllOf(HasSubstr("a.txt"), HasSubstr("check the path"), Not(HasSubstr("--run-dir"))));
}

TEST(Storage, WhatIsNoFileCannotBeRead) {
  const test::TempDir dir;
  EXPECT_THAT(test::error_of<CheckpointError>([&] { return read_text(dir / "none"); }), HasSubstr("No such file"));
  EXPECT_THAT(test::error_of<CheckpointError>([&] { return read_text(dir.path()); }), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(test::error_of<CheckpointError>([&] { return read_text(dir / "fifo"); }),
              HasSubstr("not a regular file"));
}

TEST(Storage, TooManyOpenFilesAreNoFaultOfTheDisk) {
  const test::TempDir dir;
  test::spill(dir / "there", "x");
  EXPECT_THAT(test::error_without_files([&] { write_text_atomically(dir / "a.txt", "x"); }),
              AllOf(HasSubstr("cannot create"), HasSubstr("a.txt"), HasSubstr("ulimit -n")));
  EXPECT_THAT(test::error_without_files([&] { return read_text(dir / "there"); }), HasSubstr("cannot read"));
}

TEST(Storage, MoreSpaceThanThereIsIsRefused) {
  const test::TempDir dir;
  require_free_space(dir.path(), 1);
  const auto text = test::error_of<StorageError>([&] { require_free_space(dir.path(), std::uint64_t{1} << 60); });
  EXPECT_THAT(text, HasSubstr("free space on that disk"));
}

TEST(Checksum, KnownAnswers) {
  // xxhsum -H2 of nothing and of "abc".
  EXPECT_EQ(digest_text("").xxh3_128, "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(digest_text("abc").xxh3_128, "06b05ab6733a618578af5f94892f3950");
}

TEST(Checksum, PiecesAndFilesGiveTheSameDigest) {
  const test::TempDir dir;
  std::string bytes(3'000'001, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
  test::spill(dir / "a", bytes);
  Digester digester;
  const auto all = std::as_bytes(std::span(bytes));
  digester.update(all.first(7));
  digester.update(all.subspan(7));
  EXPECT_EQ(digester.digest(), digest_text(bytes));
  EXPECT_EQ(digest_file(dir / "a"), digest_text(bytes));
  EXPECT_EQ(digest_file(dir / "a").bytes, 3'000'001U);
}

}  // namespace
}  // namespace sluice::storage
