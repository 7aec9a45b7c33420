#include "train/run/survivor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "file_locks.h"
#include "storage/checkpoint_store.h"
#include "support/files.h"
#include "support/long_tests.h"

namespace sluice::train {
namespace {

using testing::HasSubstr;
using How = comm::LostProcess::How;

TEST(Survivor, Rank0SavesAndTheOthersOnlyForRank0) {
  for (const How how : {How::kDead, How::kHung, How::kFailed}) {
    EXPECT_TRUE(saves_after({.rank = 2, .how = how}, 0));
    EXPECT_FALSE(saves_after({.rank = 2, .how = how}, 1));
    EXPECT_TRUE(saves_after({.rank = 0, .how = how}, 1));
    EXPECT_FALSE(saves_after({.rank = 0, .how = how}, 0)) << "its own failure";
  }
  EXPECT_TRUE(saves_after({.rank = 0, .how = How::kGivenUp}, 0))
      << "it was stopped for a while, and the others have gone";
  EXPECT_FALSE(saves_after({.rank = 1, .how = How::kGivenUp}, 1));
  EXPECT_FALSE(saves_after({.rank = 1, .how = How::kStopped}, 0));
}

class SaveForRank0 : public testing::Test {
 protected:
  SaveForRank0() {
    std::optional<storage::RunDir> rank_0(std::in_place, dir_ / "run", storage::RunDirMode::kNew);
    rank_0->write_config("");
    sluice::test::spill(rank_0->metrics_file(), R"({"event":"step","time_s":1,"step":7})"
                                                "\n"
                                                R"({"event":"step","time_s":2,"step":8})"
                                                "\n");
    id_ = id_of(*rank_0);
  }

  // What is said.
  std::string save(std::int64_t step) {
    testing::internal::CaptureStderr();
    save_for_rank_0(id_, step, [&](const report::MetricsPosition& metrics) {
      metrics_ = metrics;
      return contents_of(step);
    });
    return testing::internal::GetCapturedStderr();
  }
  static storage::CheckpointContents contents_of(std::int64_t step) {
    return {{{"w", at::ones({2})}}, {}, {{"step", step}}};
  }
  std::vector<std::int64_t> steps() { return storage::CheckpointStore(dir_ / "run" / "checkpoints", 2).steps(); }

  sluice::test::TempDir dir_;
  RunDirId id_;
  report::MetricsPosition metrics_;
};

TEST_F(SaveForRank0, SavesOnceAndWithoutTheRecordsOfLaterSteps) {
  EXPECT_THAT(save(7), HasSubstr("rank 0 is lost: saved the state after step 7 in its place"));
  EXPECT_EQ(metrics_.time_s, 1);
  EXPECT_EQ(save(7), "") << "another process has saved it";
  EXPECT_EQ(steps(), std::vector<std::int64_t>{7});
}

TEST_F(SaveForRank0, SavesNothingWhereTheDirectoryIsNotRank0s) {
  id_.inode += 1;
  EXPECT_THAT(save(7), HasSubstr("this machine cannot reach its run directory"));
  EXPECT_TRUE(steps().empty());
}

TEST_F(SaveForRank0, RemovesNoCheckpointThatRank0Kept) {
  storage::CheckpointStore rank_0s(dir_ / "run" / "checkpoints", 1);
  rank_0s.save(2, contents_of(2));
  rank_0s.keep_best(2);
  rank_0s.save(4, contents_of(4));
  rank_0s.save(6, contents_of(6), /*proven=*/4);
  ASSERT_EQ(steps(), (std::vector<std::int64_t>{6, 4, 2}));
  (void)save(7);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{7, 6, 4, 2})) << "the best one, and the last that is known to be good";
}

TEST_F(SaveForRank0, SavesNothingWhereTheDirectoryCannotBeLocked) {
  test::refuse_locks(true);
  EXPECT_THAT(sluice::test::error_of<StorageError>([&] { (void)save(7); }),
              HasSubstr("so another process may still write to this run directory"));
  test::refuse_locks(false);
  testing::internal::GetCapturedStderr();
  EXPECT_TRUE(steps().empty());
}

TEST_F(SaveForRank0, APathOfAnyBytesReachesTheOthersAsItIs) {
  id_.path = "/runs/caf\xe9 \xff";
  const RunDirId read = RunDirId::from_json(nlohmann::json::parse(id_.to_json().dump()));
  EXPECT_EQ(read.path, id_.path);
  EXPECT_EQ(read.inode, id_.inode);
}

TEST_F(SaveForRank0, SavesNothingWhileRank0StillRuns) {
  if (!sluice::test::runs_long_tests()) GTEST_SKIP() << "long: it waits for the lock for 5 s";
  const storage::RunDir rank_0(dir_ / "run", storage::RunDirMode::kResume);
  EXPECT_THAT(sluice::test::error_of<ConfigError>([&] { (void)save(7); }), HasSubstr("is in use by process"));
  testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace sluice::train
