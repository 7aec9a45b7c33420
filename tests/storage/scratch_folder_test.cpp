// A folder is removed with its owner, or, if the owner was killed, when the next folder is created.
#include "storage/scratch_folder.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

namespace sluice::storage {
namespace {

namespace fs = std::filesystem;

class ScratchFolderTest : public testing::Test {
 protected:
  ScratchFolderTest() {
    fs::create_directories(all_);
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
    ::setenv("TMPDIR", all_.c_str(), 1);
  }
  ~ScratchFolderTest() override {
    before_.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before_.c_str(), 1);
    fs::remove_all(all_);
  }

  void leave_one() const {
    const pid_t child = ::fork();
    if (child == 0) {
      const ScratchFolder folder("sluice-left");
      std::ofstream(folder.path() / "plan.toml") << "stages = 2";
      ::raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }
  [[nodiscard]] int count() const {
    return static_cast<int>(std::distance(fs::directory_iterator(all_), fs::directory_iterator()));
  }

  fs::path all_ = fs::path(testing::TempDir()) / ("scratch_folder_test_" + std::to_string(::getpid()));
  std::string before_;
};

TEST_F(ScratchFolderTest, GoesWithItsOwner) {
  {
    const ScratchFolder folder("sluice-tune");
    EXPECT_TRUE(fs::is_directory(folder.path()));
    EXPECT_EQ(folder.path().parent_path(), all_);
    std::ofstream(folder.path() / "plan.toml") << "stages = 2";
  }
  EXPECT_EQ(count(), 0);
}

TEST_F(ScratchFolderTest, OfAKilledProcessGoesWithTheNext) {
  leave_one();
  EXPECT_EQ(count(), 1);
  const ScratchFolder next("sluice-tune");
  EXPECT_EQ(count(), 1) << "of another name, too";
  EXPECT_TRUE(fs::is_directory(next.path()));
}

TEST_F(ScratchFolderTest, OfALivingProcessAndOfOthersStay) {
  const ScratchFolder first("sluice-tune");
  fs::create_directory(all_ / "sluice-not-locked");
  fs::create_directory(all_ / "other");
  std::ofstream(all_ / "other" / "sluice-scratch.lock") << "";
  std::ofstream(all_ / "sluice-file") << "";
  fs::create_directory_symlink(all_ / "other", all_ / "sluice-link");
  const ScratchFolder second("sluice-tune");
  EXPECT_EQ(count(), 6);
  EXPECT_TRUE(fs::is_directory(first.path()));
  EXPECT_TRUE(fs::exists(all_ / "other" / "sluice-scratch.lock"));
}

}  // namespace
}  // namespace sluice::storage
