// Logs of records that were cut short, damaged or not written: promised records are read back, or reading throws.
#include "storage/record_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <csignal>
#include <cstdlib>

#include "core/error.h"
#include "core/failpoint.h"
#include "support/files.h"

namespace sluice::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Parts = std::vector<std::string>;

const std::vector<Parts> kRecords{{"first", "", "of three parts"}, {std::string(300, 'x')}, {}, {"last", "one"}};

void append(RecordLog& log, std::uint64_t kind, const Parts& parts) {
  const std::vector<std::string_view> views(parts.begin(), parts.end());
  log.append(kind, views);
}

// sync: after how many records.
std::vector<std::uint64_t> write_log(const std::filesystem::path& file, Outlives outlives, std::size_t sync = 0) {
  RecordLog log(file, outlives);
  std::vector<std::uint64_t> ends;
  for (std::size_t i = 0; i < kRecords.size(); ++i) {
    append(log, i, kRecords[i]);
    ends.push_back(log.bytes());
    if (i == 0) log.publish();
    if (i + 1 == sync) log.sync();
  }
  return ends;
}

struct ReadBack {
  std::vector<Parts> records;
  std::uint64_t torn = 0;
};

ReadBack read_log(const std::filesystem::path& file) {
  RecordLogReader reader(file, "; advice");
  ReadBack all;
  while (const auto record = reader.next()) {
    EXPECT_EQ(record->kind, all.records.size());
    all.records.emplace_back(record->parts.begin(), record->parts.end());
  }
  all.torn = reader.torn_bytes();
  return all;
}

TEST(RecordLog, IsReadBackAsItWasWritten) {
  const test::TempDir dir;
  write_log(dir / "log", Outlives::kMachine, 4);
  const ReadBack all = read_log(dir / "log");
  EXPECT_EQ(all.records, kRecords);
  EXPECT_EQ(all.torn, 0U);
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("log"));
}

TEST(RecordLog, LargePartsAreReadBackToo) {
  const test::TempDir dir;
  const Parts parts{std::string(200'000, 'a'), "small", std::string(70'000, 'b'), std::string(3'000'000, 'c')};
  {
    RecordLog log(dir / "log", Outlives::kProcess);
    append(log, 0, parts);
    log.publish();
  }
  EXPECT_EQ(read_log(dir / "log").records, std::vector<Parts>{parts});
}

TEST(RecordLog, HasNoNameUntilItIsPublishedAndThenReplacesTheOldOne) {
  const test::TempDir dir;
  write_log(dir / "log", Outlives::kProcess);
  {
    RecordLog log(dir / "log", Outlives::kProcess);
    append(log, 0, {"new"});
    EXPECT_EQ(read_log(dir / "log").records, kRecords);
  }
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("log")) << "what was never published is gone";
  RecordLog log(dir / "log", Outlives::kProcess);
  append(log, 0, {"new"});
  log.publish();
  EXPECT_THAT(read_log(dir / "log").records, ElementsAre(Parts{"new"}));
}

TEST(RecordLog, WhatWasCutShortAnywhereIsNoRecord) {
  for (const Outlives outlives : {Outlives::kProcess, Outlives::kMachine}) {
    const test::TempDir dir;
    const std::vector<std::uint64_t> ends = write_log(dir / "log", outlives, 4);
    const std::string whole = test::slurp(dir / "log");
    ASSERT_EQ(whole.size(), ends.back());
    for (std::size_t size = ends[0]; size < whole.size(); ++size) {
      test::spill(dir / "log", std::string_view(whole).substr(0, size));
      const ReadBack all = read_log(dir / "log");
      const auto count = static_cast<std::size_t>(std::ranges::count_if(ends, [&](auto end) { return end <= size; }));
      ASSERT_EQ(all.records, std::vector(kRecords.begin(), kRecords.begin() + static_cast<std::ptrdiff_t>(count)));
      ASSERT_EQ(all.torn, size - ends[count - 1]);
    }
  }
}

TEST(RecordLog, SpaceThatWasNeverWrittenIsNoRecord) {
  const test::TempDir dir;
  write_log(dir / "log", Outlives::kMachine, 4);
  test::spill(dir / "log", test::slurp(dir / "log") + std::string(5000, '\0'));
  const ReadBack all = read_log(dir / "log");
  EXPECT_EQ(all.records, kRecords);
  EXPECT_EQ(all.torn, 5000U);
}

TEST(RecordLog, AFlippedBitInWhatIsFollowedIsAnErrorAndInTheLastRecordCutsItOff) {
  const test::TempDir dir;
  const std::vector<std::uint64_t> ends = write_log(dir / "log", Outlives::kProcess);
  const std::string whole = test::slurp(dir / "log");
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    test::spill(dir / "log", damaged);
    if (at >= ends[2]) {
      ASSERT_EQ(read_log(dir / "log").records.size(), 3U) << at;
      continue;
    }
    const auto text = test::error_of<CheckpointError>([&] { return read_log(dir / "log"); });
    ASSERT_THAT(text, testing::AnyOf(HasSubstr("is damaged at byte "), HasSubstr("is not a Sluice log"))) << at;
    ASSERT_THAT(text, HasSubstr("; advice"));
  }
}

TEST(RecordLog, RecordsThatAreMissingOrComeTwiceAreNoticed) {
  const test::TempDir dir;
  const std::vector<std::uint64_t> ends = write_log(dir / "log", Outlives::kProcess);
  const std::string whole = test::slurp(dir / "log");
  test::spill(dir / "log", whole.substr(0, ends[0]) + whole.substr(ends[1]));
  EXPECT_THAT(test::error_of<CheckpointError>([&] { return read_log(dir / "log"); }), HasSubstr("is damaged"));
  test::spill(dir / "log", whole.substr(0, ends[1]) + whole.substr(ends[0]));
  EXPECT_THAT(test::error_of<CheckpointError>([&] { return read_log(dir / "log"); }), HasSubstr("is damaged"));
}

// A machine that loses power may have kept a later unsynced record, but not the one before.
TEST(RecordLog, OfWhatWasNotSyncedAGapIsAnEnd) {
  const test::TempDir dir;
  for (const std::size_t sync : {1, 2}) {
    const std::vector<std::uint64_t> ends = write_log(dir / "log", Outlives::kMachine, sync);
    std::string bytes = test::slurp(dir / "log");
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(ends[1]),
              bytes.begin() + static_cast<std::ptrdiff_t>(ends[2]),
              '\0');  // the third of four
    test::spill(dir / "log", bytes);
    EXPECT_EQ(read_log(dir / "log").records.size(), 2U) << "synced after " << sync;
  }
  const std::vector<std::uint64_t> ends = write_log(dir / "log", Outlives::kMachine, 3);
  std::string bytes = test::slurp(dir / "log");
  bytes[ends[1] + 3] = '\0';
  test::spill(dir / "log", bytes);
  EXPECT_THAT(test::error_of<CheckpointError>([&] { return read_log(dir / "log"); }), HasSubstr("is damaged at byte"));
}

TEST(RecordLog, OtherFilesAreNone) {
  const test::TempDir dir;
  for (const std::string& bytes : {std::string("short"), std::string(5000, 'x'), std::string("{\"event\": 1}\n")}) {
    test::spill(dir / "log", bytes);
    EXPECT_THAT(test::error_of<CheckpointError>([&] { return read_log(dir / "log"); }),
                HasSubstr("is not a Sluice log"));
  }
  EXPECT_THAT(test::error_of<CheckpointError>([&] { return read_log(dir / "none"); }), HasSubstr("cannot read"));
  test::spill(dir / "log", "");
  EXPECT_TRUE(read_log(dir / "log").records.empty());
}

TEST(RecordLog, AFullDiskIsAnErrorAndNoHalfRecordStays) {
  const test::TempDir dir;
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  {
    RecordLog log(dir / "log", Outlives::kProcess);
    append(log, 0, {"first"});
    log.publish();
    struct rlimit limit = before;
    limit.rlim_cur = 100'000;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    const auto text = test::error_of<StorageError>([&] {
      append(log, 1, {std::string(200'000, 'x')});
      return 0;
    });
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_THAT(text, HasSubstr("cannot write"));
    EXPECT_THAT(text, HasSubstr((dir / "log").string()));
  }
  const ReadBack all = read_log(dir / "log");
  EXPECT_EQ(all.records, std::vector<Parts>{Parts{"first"}});
  EXPECT_EQ(all.torn, 0U);
  EXPECT_THAT(test::error_of<StorageError>([&] { return RecordLog(dir / "no/log", Outlives::kProcess).bytes(); }),
              HasSubstr("cannot create"));
}

TEST(RecordLog, ADeviceThatTakesNothingIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  const test::TempDir dir;
  std::filesystem::create_symlink("/dev/full", dir / "log.new");
  RecordLog log(dir / "log", Outlives::kMachine);
  EXPECT_THAT(test::error_of<StorageError>([&] {
                append(log, 0, {"first"});
                return 0;
              }),
              HasSubstr("No space left on device"));
}

TEST(RecordLog, AKillWithinAWriteLeavesTheRecordsBeforeIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the child begins anew, and looks for failpoints
  constexpr const char* kFile = "SLUICE_TEST_LOG";
  const test::TempDir dir;
  ::setenv(kFile, (dir / "log").c_str(), /*overwrite=*/0);  // the child's is its parent's
  const std::filesystem::path file = ::getenv(kFile);
  ::setenv(kKillAt, "record-half-written", 1);
  EXPECT_EXIT(
      {
        RecordLog log(file, Outlives::kProcess);
        append(log, 0, {"first"});
        log.publish();
        append(log, 1, {std::string(100'000, 'x')});
      },
      testing::KilledBySignal(SIGKILL), "");
  ::unsetenv(kKillAt);
  ::unsetenv(kFile);
  const ReadBack all = read_log(dir / "log");
  EXPECT_EQ(all.records, std::vector<Parts>{Parts{"first"}});
  EXPECT_GT(all.torn, 0U);
}

}  // namespace
}  // namespace sluice::storage
