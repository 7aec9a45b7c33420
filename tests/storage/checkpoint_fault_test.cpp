// Full disks and kills: a failed or killed save leaves nothing that looks like a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <thread>

#include "checkpoint_support.h"
#include "storage/checkpoint_store.h"
#include "support/files.h"

namespace sluice::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Optional;

class SmallDisk {
 public:
  explicit SmallDisk(const std::string& options) {
    mounted_ = ::mount("sluice-test", dir_.path().c_str(), "tmpfs", 0, options.c_str()) == 0;
    if (!mounted_) reason_ = std::strerror(errno);
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(dir_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  [[nodiscard]] const std::string& reason() const { return reason_; }  // empty: mounted
  [[nodiscard]] bool mounted() const { return mounted_; }
  [[nodiscard]] const std::filesystem::path& path() const { return dir_.path(); }

 private:
  test::TempDir dir_;
  bool mounted_ = false;
  std::string reason_;
};

#define SKIP_WITHOUT(disk) \
  if (!(disk).mounted()) GTEST_SKIP() << "needs the right to mount a tmpfs (root): " << (disk).reason()

constexpr std::int64_t kFloats = 1 << 15;  // contents_of(_, kFloats) takes 384 KiB

TEST(FullDisk, ASaveThatDoesNotFitIsRefusedBeforeItStarts) {
  const SmallDisk disk("size=1m");
  SKIP_WITHOUT(disk);
  CheckpointStore store(disk.path(), 5);
  store.save(1, contents_of(1, kFloats));
  const auto text = test::error_of<StorageError>([&] {
    store.save(2, contents_of(2, kFloats));
    store.save(3, contents_of(3, kFloats));
  });
  EXPECT_THAT(text, HasSubstr(disk.path().string()));
  EXPECT_THAT(text, HasSubstr("No space left on device; needs 46"));
  EXPECT_THAT(text, HasSubstr("free space on that disk or write elsewhere (a run: choose another --run-dir"));
  EXPECT_THAT(test::names_in(disk.path()), ElementsAre("step-1", "step-2"));
  EXPECT_THAT(scan_checkpoints(disk.path()).newest, Optional(disk.path() / "step-2"));
  expect_contents(load_checkpoint(disk.path() / "step-1"), 1, kFloats);
}

// Inodes run out at another file each time, although statvfs reports enough space.
TEST(FullDisk, ASaveThatFailsMidwayLeavesNothing) {
  int failures = 0;
  for (int inodes = 6; inodes < 14; ++inodes) {
    const SmallDisk disk("size=8m,nr_inodes=" + std::to_string(inodes));
    SKIP_WITHOUT(disk);
    CheckpointStore store(disk.path(), 5);
    try {
      for (const int step : {1, 2, 3}) store.save(step, contents_of(step));
    } catch (const StorageError& error) {
      ++failures;
      EXPECT_THAT(error.what(), HasSubstr(disk.path().string()));
    }
    for (const auto& name : test::names_in(disk.path())) {
      EXPECT_THAT(name, testing::StartsWith("step-"));
      EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
      verify_checkpoint(disk.path() / name);
    }
  }
  EXPECT_GT(failures, 4);
}

TEST(FullDisk, AFileThatDoesNotFitLeavesTheOldVersion) {
  const SmallDisk disk("size=1m");
  SKIP_WITHOUT(disk);
  const auto file = disk.path() / "weights.safetensors";
  write_safetensors(file, {{"x", at::zeros({4})}});
  const auto text = test::error_of<StorageError>([&] { write_safetensors(file, {{"x", at::zeros({1 << 20})}}); });
  EXPECT_THAT(text, HasSubstr("cannot write " + file.string() + ": No space left on device; needs 4.0 MiB, "));
  EXPECT_THAT(test::names_in(disk.path()), ElementsAre("weights.safetensors"));
  EXPECT_EQ(read_safetensors(file).tensors.at("x").numel(), 4);
}

TEST(ReadOnlyDisk, IsNamedWithWhatToDo) {
  const SmallDisk disk("size=1m");
  SKIP_WITHOUT(disk);
  CheckpointStore store(disk.path(), 1);
  store.save(1, contents_of(1));
  ASSERT_EQ(::mount("", disk.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  const auto text = test::error_of<StorageError>([&] { store.save(2, contents_of(2)); });
  EXPECT_THAT(text, HasSubstr("Read-only file system"));
  EXPECT_THAT(text, HasSubstr("choose a place that can be written"));
  EXPECT_THAT(scan_checkpoints(disk.path()).newest, Optional(disk.path() / "step-1"));
}

// Runs `body` in a child process; its exit status, or 128 + signal.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Needs no root: the limit on file sizes cuts a write() short.
TEST(FileSizeLimit, AShortWriteIsAStorageErrorThatLeavesNothing) {
  const test::TempDir dir;
  CheckpointStore(dir.path(), 2).save(1, contents_of(1));
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    try {
      CheckpointStore(dir.path(), 2).save(2, contents_of(2, kFloats));
    } catch (const StorageError& error) {
      return std::strstr(error.what(), "model.safetensors: File too large; needs") != nullptr ? 0 : 3;
    }
    return 4;
  });
  EXPECT_EQ(status, 0);
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("step-1"));
}

// Saves steps for ever, some of them twice, until it is killed. Acknowledges each durable step through the pipe.
[[noreturn]] void save_for_ever(const std::filesystem::path& dir, std::int64_t first, int acknowledge) {
  CheckpointStore store(dir, 2);
  for (auto step = first;; ++step) {
    for (int again = 0; again < 1 + static_cast<int>((step + 1) % 2); ++again)
      store.save(step, contents_of(step, 2000));
    if (::write(acknowledge, &step, sizeof(step)) != sizeof(step)) ::_exit(1);
  }
}

std::chrono::microseconds time_of_a_save() {
  const test::TempDir dir;
  CheckpointStore store(dir.path(), 1);
  const auto begin = std::chrono::steady_clock::now();
  for (const int step : {1, 2, 3, 4}) store.save(step, contents_of(step, 2000));
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin) / 4;
}

TEST(Kill, AtAnyMomentLeavesTheLastAcknowledgedCheckpointOrANewerOne) {
  const test::TempDir dir;
  std::mt19937 random(7);
  const auto range = 4 * static_cast<std::uint64_t>(time_of_a_save().count()) + 1;
  std::int64_t acknowledged = 0;
  for (int round = 0; round < 60; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(pipe_ends[0]);
      save_for_ever(dir.path(), acknowledged + 1, pipe_ends[1]);
    }
    ::close(pipe_ends[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % range));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    for (std::int64_t step = 0; ::read(pipe_ends[0], &step, sizeof(step)) == sizeof(step);) acknowledged = step;
    ::close(pipe_ends[0]);

    const auto scan = scan_checkpoints(dir.path());
    EXPECT_TRUE(scan.damaged.empty()) << "round " << round;
    if (acknowledged == 0) continue;
    ASSERT_TRUE(scan.newest.has_value()) << "round " << round;
    const auto step = step_of(*scan.newest).value();
    EXPECT_GE(step, acknowledged) << "round " << round;
    expect_contents(load_checkpoint(*scan.newest), step, 2000);
  }
  EXPECT_GT(acknowledged, 0);
  const CheckpointStore store(dir.path(), 2);
  for (const auto& name : test::names_in(dir.path())) EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
}

}  // namespace
}  // namespace sluice::storage
