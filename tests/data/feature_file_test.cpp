#include "data/feature_file.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include <csignal>
#include <map>
#include <random>

#include "core/concat.h"
#include "core/host.h"
#include "data/feature_support.h"
#include "data/unnamed_file.h"
#include "support/files.h"

namespace sluice::data {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr std::uint64_t kBudget = 200'000;

bool holds(const FeatureFile& file, const FeatureFile::Layout& layout, std::uint32_t slot, const FeatureKey& key) {
  test::Bytes bytes(layout.slot_bytes);
  if (!file.read(layout, slot, key, bytes.data())) return false;
  bytes.resize(layout.row_bytes);
  return bytes == test::row_of(key, layout.row_bytes);
}

bool write(FeatureFile& file, std::uint32_t slot, const FeatureKey& key) {
  return file.write(slot, key, test::row_of(key, file.layout().row_bytes).data());
}

using Slots = std::map<std::int64_t, std::uint32_t>;  // by sample

Slots fill(FeatureFile& file, std::int64_t most = 1'000'000) {
  Slots slots;
  for (std::int64_t sample = 0; sample < most; ++sample) {
    const auto slot = file.reserve();
    if (!slot) break;
    EXPECT_TRUE(write(file, *slot, {sample, 0}));
    slots.emplace(sample, *slot);
  }
  return slots;
}

TEST(FeatureFile, TooManyOpenFilesAreNoLackOfRoom) {
  const test::TempDir dir;
  testing::internal::CaptureStderr();
  {
    const test::NoMoreFiles shortage;
    const FeatureFile file(dir.path(), kBudget);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(HasSubstr("ulimit -n"), Not(HasSubstr("free space"))));
}

TEST(FeatureFile, HoldsAsManyRowsAsTheBudgetHasRoomFor) {
  const test::TempDir dir;
  for (const std::uint64_t row_bytes : {1U, 8U, 1000U, 50'000U, 199'992U, 199'993U, 500'000U}) {
    FeatureFile file(dir.path(), kBudget);
    file.reset(row_bytes);
    const auto slots = fill(file);
    EXPECT_EQ(slots.size(), kBudget / ((row_bytes + 8 + 7) / 8 * 8)) << row_bytes;
    for (const auto& [sample, slot] : slots) EXPECT_TRUE(holds(file, file.layout(), slot, {sample, 0}));
    const auto open = test::unnamed_files(dir.path());
    ASSERT_THAT(open, SizeIs(1));
    EXPECT_LE(test::size_of(open[0]), kBudget);
    EXPECT_EQ(test::size_of(open[0]), file.size());
    file.reset(row_bytes);
    EXPECT_EQ(test::size_of(open[0]), 0U);
  }
}

TEST(FeatureFile, GrowsInStepsThatAreOnTheDiskBeforeTheyAreWritten) {
  const test::TempDir dir;
  FeatureFile file(dir.path(), 64 << 20);
  file.reset(1000);
  EXPECT_EQ(file.size(), 0U);
  const auto slot = file.reserve();
  ASSERT_TRUE(slot && write(file, *slot, {0, 0}));
  EXPECT_EQ(file.size(), 1U << 20);
  EXPECT_GE(test::blocks_of(test::unnamed_files(dir.path()).at(0)), 1U << 20);
}

TEST(FeatureFile, NoFolderListsIt) {
  const test::TempDir dir;
  FeatureFile file(dir / "a" / "b", kBudget);
  file.reset(100);
  ASSERT_FALSE(fill(file).empty());
  EXPECT_THAT(test::names_in(dir / "a" / "b"), IsEmpty());
  EXPECT_THAT(test::unnamed_files(dir / "a" / "b"), SizeIs(1));
}

TEST(FeatureFile, WithoutABudgetNothingIsTouched) {
  const test::TempDir dir;
  const FeatureFile file(dir / "a", 0);
  EXPECT_TRUE(file.is_off());
  EXPECT_THAT(test::names_in(dir.path()), IsEmpty());
}

TEST(FeatureFile, EachDamagedByteIsFound) {
  const test::TempDir dir;
  FeatureFile file(dir.path(), kBudget);
  file.reset(64);
  const auto slots = fill(file);
  const auto path = test::unnamed_files(dir.path()).at(0);
  const std::uint64_t begin = slots.at(5) * file.layout().slot_bytes;
  for (std::uint64_t byte = 0; byte < 64 + 8; ++byte) {
    test::damage(path, begin + byte, 1);
    EXPECT_FALSE(holds(file, file.layout(), slots.at(5), {5, 0})) << byte;
    test::damage(path, begin + byte, 1);
    EXPECT_TRUE(holds(file, file.layout(), slots.at(5), {5, 0})) << byte;
  }
}

TEST(FeatureFile, ARowOfAnotherKeyOrOfAnOlderLayoutDoesNotVerify) {
  const test::TempDir dir;
  FeatureFile file(dir.path(), kBudget);
  file.reset(64);
  const auto older = file.layout();
  const auto slot = file.reserve();
  ASSERT_TRUE(slot && write(file, *slot, {7, 1}));
  test::Bytes bytes(older.slot_bytes);
  EXPECT_TRUE(file.read(older, *slot, {7, 1}, bytes.data()));
  EXPECT_FALSE(file.read(older, *slot, {7, 0}, bytes.data()));
  EXPECT_FALSE(file.read(older, *slot, {8, 1}, bytes.data()));
  file.begin_change(64);  // the same bytes, read as of the next layout
  EXPECT_TRUE(file.read(older, *slot, {7, 1}, bytes.data()));
  EXPECT_FALSE(file.read(file.layout(), *slot, {7, 1}, bytes.data()));
}

TEST(FeatureFile, ASlotThatIsGivenBackIsUsedAgain) {
  const test::TempDir dir;
  FeatureFile file(dir.path(), kBudget);
  file.reset(1000);
  const auto slots = fill(file);
  EXPECT_TRUE(file.full());
  file.give_back(slots.at(3));
  EXPECT_FALSE(file.full());
  EXPECT_EQ(file.reserve(), slots.at(3));
  EXPECT_FALSE(file.reserve());
}

// Changes row after row, and checks that no old row is changed before its turn.
Slots change_rows(FeatureFile& file, const Slots& slots, std::uint64_t new_bytes) {
  const auto old = file.layout();
  file.begin_change(new_bytes);
  Slots kept;
  for (const auto& [sample, old_slot] : slots) {
    EXPECT_TRUE(holds(file, old, old_slot, {sample, 0})) << sample;
    file.release_old(old_slot);
    const auto slot = file.reserve();
    if (slot && write(file, *slot, {sample, 0})) kept.emplace(sample, *slot);
    EXPECT_LE(file.size(), kBudget);
  }
  file.end_change();
  return kept;
}

TEST(FeatureFile, RowsChangeTheirSizeInPlaceWithinTheBudget) {
  std::mt19937 random(4);
  const test::TempDir dir;
  for (int trial = 0; trial < 60; ++trial) {
    const std::uint64_t old_bytes = 500 + random() % 4000;
    const std::uint64_t new_bytes = 500 + random() % 4000;
    const bool has_room = trial % 3 == 0;
    SCOPED_TRACE(testing::Message() << old_bytes << " to " << new_bytes);
    FeatureFile file(dir.path(), kBudget);
    file.reset(old_bytes);
    const Slots slots = fill(file, has_room ? 20 : 1000);
    const Slots kept = change_rows(file, slots, new_bytes);
    if (new_bytes <= old_bytes || has_room) {
      EXPECT_EQ(kept.size(), slots.size());
    }
    EXPECT_EQ(kept.size() + fill(file).size(), file.most_rows());
    EXPECT_LE(test::size_of(test::unnamed_files(dir.path()).at(0)), kBudget);
    for (const auto& [sample, slot] : kept) EXPECT_TRUE(holds(file, file.layout(), slot, {sample, 0})) << sample;
  }
}

TEST(UnnamedFile, WithoutTmpfileTheNameIsUnlinked) {
  const test::TempDir dir;
  const FileDescriptor file = open_and_unlink(dir.path());
  ASSERT_TRUE(file.is_open());
  EXPECT_THAT(test::names_in(dir.path()), IsEmpty());
  const auto open = test::unnamed_files(dir.path());
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_THAT(std::filesystem::read_symlink(open[0]).string(), HasSubstr(concat("sluice-features-", ::getpid(), "-")));
  struct stat status {};
  ASSERT_EQ(::fstat(file.get(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

// A process is killed after it created its file and before it unlinked it.
TEST(UnnamedFile, LeftoversOfDeadProcessesOfThisMachineAreRemoved) {
  const test::TempDir dir;
  pid_t dead = 0;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  dead = child;
  const std::string of_dead = concat("sluice-features-", dead, "-", host_name(), "-aB3dEf");
  const std::string of_us = concat("sluice-features-", ::getpid(), "-", host_name(), "-aB3dEf");
  const std::string of_living = concat("sluice-features-", ::getppid(), "-", host_name(), "-aB3dEf");
  const std::string of_another_machine = concat("sluice-features-", dead, "-not-", host_name(), "-aB3dEf");
  const std::string of_nobody = concat("sluice-features-x", dead, "-", host_name(), "-aB3dEf");
  for (const auto& name : {of_dead, of_us, of_living, of_another_machine, of_nobody, std::string("notes.txt")})
    test::spill(dir / name, "");
  const FeatureFile file(dir.path(), kBudget);
  EXPECT_THAT(test::names_in(dir.path()),
              testing::UnorderedElementsAre(of_living, of_another_machine, of_nobody, "notes.txt"));
}

TEST(UnnamedFile, AKilledProcessLeavesNothing) {
  const test::TempDir dir;
  const int status = test::in_child([&] {
    FeatureFile file(dir.path(), kBudget);
    file.reset(1000);
    const auto slot = file.reserve();
    if (!slot || !write(file, *slot, {0, 0})) return 1;
    const FileDescriptor named = open_and_unlink(dir.path());
    ::raise(SIGKILL);
    return 2;
  });
  EXPECT_EQ(status, 128 + SIGKILL);
  EXPECT_THAT(test::names_in(dir.path()), IsEmpty());
}

TEST(FeatureFile, AFolderThatCannotBeMadeTurnsItOffWithOneWarning) {
  const test::TempDir dir;
  test::spill(dir / "file", "");
  const auto log = test::log_of([&] {
    FeatureFile file(dir / "file" / "folder", kBudget);
    file.reset(1000);
    EXPECT_TRUE(file.is_off());
    EXPECT_FALSE(file.reserve());
  });
  EXPECT_THAT(log, HasSubstr(concat((dir / "file" / "folder").string(), ": Not a directory; ")));
  EXPECT_THAT(log, HasSubstr("freeze.cache_dir"));
  EXPECT_EQ(test::warnings_in(log), 1);
}

// Writes rows until that fails. They can be read until then; afterwards the file is closed.
void fill_until_it_fails(const std::filesystem::path& dir) {
  FeatureFile file(dir, 64 << 20);
  file.reset(64 << 10);
  std::int64_t written = 0;
  for (; written < 1000; ++written) {
    const auto slot = file.reserve();
    ASSERT_TRUE(slot.has_value());
    if (!write(file, *slot, {written, 0})) break;
    EXPECT_TRUE(holds(file, file.layout(), *slot, {written, 0}));
  }
  EXPECT_GT(written, 10);
  EXPECT_LT(written, 1000);
  EXPECT_TRUE(file.is_off());
  EXPECT_EQ(file.size(), 0U);
  EXPECT_THAT(test::unnamed_files(dir), IsEmpty());
  EXPECT_FALSE(file.reserve());
  EXPECT_FALSE(write(file, 0, {0, 0}));
  EXPECT_FALSE(holds(file, file.layout(), 0, {0, 0}));
  file.reset(100);
  EXPECT_FALSE(file.reserve());
}

TEST(FeatureFile, AFileThatMayNotGrowTurnsItOffWithOneWarning) {
  const test::TempDir dir;
  const int status = test::in_child([&] {
    test::limit_files(3'000'000);
    const auto log = test::log_of([&] { fill_until_it_fails(dir.path()); });
    EXPECT_THAT(log, HasSubstr(concat(dir.path().string(), ": File too large; ")));
    EXPECT_EQ(test::warnings_in(log), 1);
    return 0;
  });
  EXPECT_EQ(status, 0);
}

constexpr int kMayNotMount = 77;

// A file system of 4 MiB at `dir`, for this process alone.
bool mount_small_disk(const std::filesystem::path& dir) {
  if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("none", dir.c_str(), "tmpfs", 0, "size=4m") == 0;
}

TEST(FeatureFile, AFullDiskTurnsItOffWithOneWarningAndGetsItsSpaceBack) {
  const test::TempDir dir;
  const int status = test::in_child([&] {
    if (!mount_small_disk(dir.path())) return kMayNotMount;
    const auto log = test::log_of([&] { fill_until_it_fails(dir.path()); });
    EXPECT_THAT(log, HasSubstr(concat(dir.path().string(), ": No space left on device; ")));
    EXPECT_EQ(test::warnings_in(log), 1);
    struct statvfs disk {};
    EXPECT_EQ(::statvfs(dir.path().c_str(), &disk), 0);
    EXPECT_EQ(disk.f_bavail, disk.f_blocks);
    return 0;
  });
  if (status == kMayNotMount) GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(status, 0);
}

TEST(FeatureFile, AReadOnlyDiskTurnsItOffWithOneWarning) {
  const test::TempDir dir;
  const int status = test::in_child([&] {
    if (!mount_small_disk(dir.path())) return kMayNotMount;
    EXPECT_EQ(::mount("none", dir.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
    const auto log = test::log_of([&] { EXPECT_TRUE(FeatureFile(dir.path(), kBudget).is_off()); });
    EXPECT_THAT(log, HasSubstr("Read-only file system; "));
    return 0;
  });
  if (status == kMayNotMount) GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sluice::data
