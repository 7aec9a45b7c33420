#include "storage/run_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "core/clock.h"
#include "support/files.h"

namespace sluice::storage {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

TEST(RunDir, ANewOneIsMadeWithItsParents) {
  const test::TempDir dir;
  const RunDir run(dir / "a" / "b", RunDirMode::kNew);
  EXPECT_FALSE(run.resumes());
  run.write_config("lr = 0.1\n");
  EXPECT_EQ(test::slurp(dir / "a" / "b" / "config.toml"), "lr = 0.1\n");
  EXPECT_EQ(run.checkpoints_dir(), dir / "a" / "b" / "checkpoints");
}

TEST(RunDir, AnotherProcessMayMakeTheDirectoryAtTheSameTime) {
  const test::TempDir dir;
  for (int i = 0; i < 500; ++i) {
    const auto path = dir / std::to_string(i);
    std::atomic<bool> is_ready = false;
    std::jthread other([&] {
      is_ready = true;
      std::filesystem::create_directory(path);
    });
    while (!is_ready) {
    }
    for (const Nanoseconds until = now_ns() + 200 * (i % 100); now_ns() < until;) {
    }
    EXPECT_NO_THROW(RunDir(path, RunDirMode::kResumeOrNew));
  }
}

TEST(RunDir, AnotherRunIsNotOverwritten) {
  const test::TempDir dir;
  RunDir(dir / "run", RunDirMode::kNew).write_config("lr = 0.1\n");
  const auto text = test::error_of<ConfigError>([&] { RunDir(dir / "run", RunDirMode::kNew); });
  EXPECT_THAT(text, HasSubstr((dir / "run").string() + " already holds a run (config.toml)"));
  EXPECT_THAT(text, HasSubstr("to continue it (or begin it, if it has no checkpoint yet) add --resume auto"));
  EXPECT_EQ(test::slurp(dir / "run" / "config.toml"), "lr = 0.1\n");
}

TEST(RunDir, ResumeNeedsARunAndResumeOrNewDoesNot) {
  const test::TempDir dir;
  EXPECT_THAT(test::error_of<ConfigError>([&] { RunDir(dir / "none", RunDirMode::kResume); }), HasSubstr("to resume"));
  EXPECT_FALSE(std::filesystem::exists(dir / "none"));
  std::filesystem::create_directory(dir / "empty");
  EXPECT_THAT(test::error_of<ConfigError>([&] { RunDir(dir / "empty", RunDirMode::kResume); }),
              HasSubstr("holds no run"));
  {
    const RunDir run(dir / "run", RunDirMode::kResumeOrNew);
    EXPECT_FALSE(run.resumes());
    run.write_config("");
  }
  EXPECT_TRUE(RunDir(dir / "run", RunDirMode::kResumeOrNew).resumes());
  EXPECT_TRUE(RunDir(dir / "run", RunDirMode::kResume).resumes());
}

TEST(RunDir, WhatNeverBeganLeavesNothing) {
  const test::TempDir dir;
  {
    const RunDir run(dir / "new", RunDirMode::kNew);
    run.write_config("lr = 0.1\n");
    std::filesystem::create_directory(run.checkpoints_dir());
    run.discarding()();
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "new"));
  {
    const RunDir run = RunDir::create_named(dir / "runs", "small");
    run.discarding()();
    EXPECT_FALSE(std::filesystem::exists(run.path()));
  }
}

TEST(RunDir, WhatWasThereBeforeARunThatNeverBeganStays) {
  const test::TempDir dir;
  RunDir(dir / "run", RunDirMode::kNew).write_config("lr = 0.1\n");
  RunDir(dir / "run", RunDirMode::kResume).discarding()();
  EXPECT_EQ(test::slurp(dir / "run" / "config.toml"), "lr = 0.1\n");
  std::filesystem::create_directory(dir / "own");
  RunDir(dir / "own", RunDirMode::kNew).discarding()();
  EXPECT_TRUE(std::filesystem::is_empty(dir / "own")) << "the user made it";
  write_text_atomically(dir / "own" / "log.txt", "the user's");
  RunDir(dir / "own", RunDirMode::kNew).discarding()();
  EXPECT_EQ(test::names_in(dir / "own"), std::vector<std::string>{"log.txt"});
}

TEST(RunDir, ASecondProcessGetsAnErrorWithTheOwner) {
  const test::TempDir dir;
  const RunDir run(dir / "run", RunDirMode::kNew);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const RunDir second(dir / "run", RunDirMode::kResumeOrNew);
    } catch (const ConfigError& error) {
      const auto owner = "is in use by process " + std::to_string(::getppid());
      ::_exit(std::string(error.what()).find(owner) != std::string::npos ? 0 : 1);
    }
    ::_exit(2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(RunDir, TheLockEndsWithItsOwner) {
  const test::TempDir dir;
  { const RunDir run(dir / "run", RunDirMode::kNew); }
  EXPECT_NO_THROW(RunDir(dir / "run", RunDirMode::kNew));
}

TEST(RunDir, KnowsWhetherItIsStillThere) {
  const test::TempDir dir;
  using Presence = RunDir::Presence;
  const RunDir run(dir / "run", RunDirMode::kNew);
  EXPECT_EQ(run.presence(), Presence::kThere);
  std::filesystem::remove(dir / "run" / ".lock");
  EXPECT_EQ(run.presence(), Presence::kThere) << "a lock that somebody thought stale is no directory";
  std::filesystem::rename(dir / "run", dir / "away");
  EXPECT_EQ(run.presence(), Presence::kGone);
  std::filesystem::create_directory(dir / "run");
  EXPECT_EQ(run.presence(), Presence::kReplaced) << "the own one still is somewhere else";
  std::filesystem::remove(dir / "run");
  std::filesystem::rename(dir / "away", dir / "run");
  EXPECT_EQ(run.presence(), Presence::kThere);
  std::filesystem::remove_all(dir / "run");
  EXPECT_EQ(run.presence(), Presence::kGone);
  std::filesystem::create_directory(dir / "run");
  EXPECT_EQ(run.presence(), Presence::kReplaced);
}

TEST(RunDir, NamedOnesNeverCollide) {
  const test::TempDir dir;
  const auto first = RunDir::create_named(dir / "runs", "gpt2 nano/x");
  const auto second = RunDir::create_named(dir / "runs", "gpt2 nano/x");
  EXPECT_NE(first.path(), second.path());
  EXPECT_THAT(first.path().filename().string(), MatchesRegex("gpt2_nano_x-[0-9]+-[0-9]+"));
  EXPECT_EQ(first.path().parent_path(), dir / "runs");
}

TEST(RunDir, TracesAreThoseOfItsOwnNames) {
  const test::TempDir dir;
  for (const char* name :
       {"trace.rank0.json.gz", "trace.rank12.json.gz", "trace.rank03.json.gz", "trace.rank-1.json.gz",
        "trace.rank4.json", "trace.rank5.json.gz.old", "my.trace.rank6.json.gz", "trace.worker7.json.gz",
        "trace.rank8x.json.gz", "trace.rank.json.gz"})
    test::spill(dir / name, "");
  std::filesystem::create_directory(dir / "trace.rank9.json.gz");
  EXPECT_THAT(RunDir::traces(dir.path()), testing::ElementsAre(std::pair(0, dir / "trace.rank0.json.gz"),
                                                               std::pair(12, dir / "trace.rank12.json.gz")));
  EXPECT_TRUE(RunDir::traces(dir / "none").empty());
}

TEST(RunDir, AFileInTheWayIsNamed) {
  const test::TempDir dir;
  test::spill(dir / "run", "");
  EXPECT_THAT(test::error_of<ConfigError>([&] { RunDir(dir / "run", RunDirMode::kNew); }), HasSubstr("is a file"));
}

}  // namespace
}  // namespace sluice::storage
