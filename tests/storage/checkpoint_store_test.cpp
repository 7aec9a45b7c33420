#include "storage/checkpoint_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits>

#include "checkpoint_support.h"
#include "core/error.h"
#include "support/files.h"

namespace sluice::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Optional;

TEST(CheckpointStore, WhatIsSavedIsLoaded) {
  const test::TempDir dir;
  CheckpointStore store(dir / "checkpoints", 2);
  EXPECT_EQ(scan_checkpoints(dir / "checkpoints").newest, std::nullopt);
  const auto saved = store.save(30, contents_of(30));
  EXPECT_EQ(saved, dir / "checkpoints" / "step-30");
  EXPECT_THAT(test::names_in(saved), ElementsAre("model.safetensors", "optimizer.safetensors", "state.json"));
  EXPECT_THAT(scan_checkpoints(dir / "checkpoints").newest, Optional(saved));
  expect_contents(load_checkpoint(saved), 30);
}

TEST(CheckpointStore, StateJsonIsReadableByAnyone) {
  const test::TempDir dir;
  const auto saved = CheckpointStore(dir.path(), 1).save(7, contents_of(7));
  const auto state = nlohmann::json::parse(test::slurp(saved / "state.json"));
  EXPECT_EQ(state.at("step"), 7);
  EXPECT_EQ(state.at("format"), 1);
  EXPECT_EQ(state.at("seed"), 0xffffffffffffffffU);
  EXPECT_EQ(state.at("files").at("model.safetensors").at("xxh3_128"),
            digest_file(saved / "model.safetensors").xxh3_128);
}

TEST(CheckpointStore, TheNewestIsByNumberNotByName) {
  const test::TempDir dir;
  CheckpointStore store(dir.path(), 5);
  for (const int step : {9, 100, 20}) store.save(step, contents_of(step));
  EXPECT_THAT(scan_checkpoints(dir.path()).newest, Optional(dir / "step-100"));
}

TEST(CheckpointStore, KeepsTheNewestComplete) {
  const test::TempDir dir;
  CheckpointStore store(dir.path(), 2);
  for (const int step : {1, 2, 3, 10}) store.save(step, contents_of(step));
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("step-10", "step-3"));
}

TEST(CheckpointStore, ADirectoryThatReplacedTheRunsStaysAsItIs) {
  const test::TempDir dir;
  bool is_replaced = false;
  CheckpointStore store(dir / "run" / "checkpoints", 2, [&] { return is_replaced; });
  std::filesystem::rename(dir / "run", dir / "moved");
  std::filesystem::create_directory(dir / "run");
  is_replaced = true;
  EXPECT_THAT(test::error_of<StorageError>([&] { store.save(1, contents_of(1)); }),
              HasSubstr("another directory has replaced "));
  EXPECT_THAT(test::names_in(dir / "run"), ElementsAre());
}

TEST(CheckpointStore, AMissingRunDirectoryIsRecreatedAndOurs) {
  const test::TempDir dir;
  CheckpointStore store(dir / "run" / "checkpoints", 2, [] { return true; });  // what is not the first one's is another
  EXPECT_FALSE(store.has_made_dir());
  EXPECT_THROW(store.save(1, contents_of(1)), StorageError) << "somebody else's";
  std::filesystem::remove_all(dir / "run" / "checkpoints");
  EXPECT_THROW(store.save(1, contents_of(1)), StorageError) << "still somebody else's";
  std::filesystem::remove_all(dir / "run");
  for (const int step : {1, 2}) {
    expect_contents(load_checkpoint(store.save(step, contents_of(step))), step);
    EXPECT_TRUE(store.has_made_dir());
  }
}

TEST(CheckpointStore, NothingIsMadeOfTensorsThatAreNotFiniteAndNothingIsRemoved) {
  const test::TempDir dir;
  CheckpointStore store(dir.path(), 1);
  store.save(1, contents_of(1));
  const auto refusal_of = [&](const CheckpointContents& contents) -> std::string {
    try {
      store.save(2, contents);
    } catch (const DivergedError& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  constexpr std::int64_t kLarge = 3 << 20;  // several blocks of a file
  CheckpointContents model = contents_of(2, kLarge), optimizer = contents_of(2);
  model.model.at("layer.weight")[kLarge - 1].fill_(std::numeric_limits<float>::quiet_NaN());
  model.model.at("layer.weight")[5].fill_(std::numeric_limits<float>::infinity());
  optimizer.optimizer.at("layer.weight/momentum")[3].fill_(-std::numeric_limits<double>::infinity());
  EXPECT_THAT(refusal_of(model), HasSubstr("after step 2: layer.weight has 1 NaN and 1 infinite value"));
  model.model.at("layer.weight")[5].fill_(0);
  EXPECT_THAT(refusal_of(model), HasSubstr("layer.weight has 1 NaN, so no checkpoint")) << "in its last block alone";
  EXPECT_THAT(refusal_of(optimizer), HasSubstr("layer.weight/momentum has 1 infinite value"));
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("step-1"));
  expect_contents(load_checkpoint(dir / "step-1"), 1);
}

TEST(CheckpointStore, ADamagedOneDoesNotCountAsKept) {
  const test::TempDir dir;
  CheckpointStore store(dir.path(), 2);
  store.save(1, contents_of(1));
  store.save(2, contents_of(2));
  std::filesystem::resize_file(dir / "step-2" / "model.safetensors", 10);
  store.save(3, contents_of(3));
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("step-1", "step-2", "step-3"));
  store.save(4, contents_of(4));
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("step-3", "step-4"));
}

// A run that fell back from a damaged step-9 to step-4 with keep = 1 must not lose the step it just saved to it.
TEST(CheckpointStore, LaterStepsOfALostHistoryNeverPushOutTheOneJustSaved) {
  const test::TempDir dir;
  CheckpointStore(dir.path(), 1).save(9, contents_of(9));
  CheckpointStore store(dir.path(), 1);
  store.save(5, contents_of(5));
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("step-5", "step-9"));
}

TEST(CheckpointStore, ResumingFromAnOlderOneOnPurposeSetsTheNewerAsideUntilThereIsAnother) {
  const test::TempDir dir;
  CheckpointStore store(dir.path(), 5);
  for (const int step : {1, 2, 3}) store.save(step, contents_of(step));
  store.set_aside_newer_than(1);
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("step-1", "step-2.left", "step-3.left"));
  EXPECT_THAT(scan_checkpoints(dir.path()).newest, Optional(dir / "step-1"));
  CheckpointStore restarted(dir.path(), 5);
  restarted.save(2, contents_of(2));
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("step-1", "step-2"));
}

TEST(CheckpointStore, AProvenStepStaysBesideTheKept) {
  const test::TempDir dir;
  CheckpointStore store(dir.path(), 1);
  for (const int step : {1, 2}) store.save(step, contents_of(step));
  store.save(3, contents_of(3), /*proven=*/2);
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("step-2", "step-3"));
  store.save(4, contents_of(4), /*proven=*/3);
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("step-3", "step-4"));
  EXPECT_THAT(store.steps(), ElementsAre(4, 3));
}

TEST(CheckpointStore, SavingAStepAgainReplacesIt) {
  const test::TempDir dir;
  CheckpointStore store(dir.path(), 2);
  store.save(5, contents_of(5));
  auto again = contents_of(5);
  again.state["epoch"] = 77;
  store.save(5, again);
  EXPECT_EQ(load_checkpoint(dir / "step-5").state.at("epoch"), 77);
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("step-5"));
}

TEST(CheckpointStore, ADamagedStepIsReplacedWhenTheRunComesThereAgain) {
  const test::TempDir dir;
  CheckpointStore store(dir.path(), 2);
  store.save(5, contents_of(5));
  test::spill(dir / "step-5" / "state.json", "");
  EXPECT_EQ(scan_checkpoints(dir.path()).newest, std::nullopt);
  store.save(5, contents_of(5));
  EXPECT_THAT(scan_checkpoints(dir.path()).newest, Optional(dir / "step-5"));
}

TEST(CheckpointStore, RemovesWhatDeadProcessesLeftAndNothingElse) {
  const test::TempDir dir;
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(dead, nullptr, 0), dead);
  const auto alive = "step-3.tmp-" + std::to_string(::getppid());
  for (const auto& name : {"step-1.tmp-" + std::to_string(dead), "step-2.tmp-" + std::to_string(::getpid()), alive,
                           std::string("step-x"), std::string("notes")}) {
    std::filesystem::create_directories(dir / name);
  }
  const CheckpointStore store(dir.path(), 1);
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("notes", alive, "step-x"));
}

TEST(CheckpointStore, RestoresAStepWhoseReplacementWasInterrupted) {
  const test::TempDir dir;
  CheckpointStore(dir.path(), 1).save(5, contents_of(5));
  std::filesystem::rename(dir / "step-5", dir / "step-5.replaced");
  CheckpointStore store(dir.path(), 1);
  EXPECT_THAT(scan_checkpoints(dir.path()).newest, Optional(dir / "step-5"));
  std::filesystem::create_directory(dir / "step-5.replaced");
  const CheckpointStore again(dir.path(), 1);
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre("step-5"));
}

TEST(CheckpointStore, ACopyUnderAnotherNameLoads) {
  const test::TempDir dir;
  const auto saved = CheckpointStore(dir.path(), 1).save(5, contents_of(5));
  std::filesystem::copy(saved, dir / "best");
  expect_contents(load_checkpoint(dir / "best"), 5);
}

TEST(CheckpointStore, AFolderThatIsNoCheckpointIsRefusedWithAdvice) {
  const test::TempDir dir;
  const auto text = test::error_of<CheckpointError>([&] { return load_checkpoint(dir.path()); });
  EXPECT_THAT(text,
              HasSubstr(dir.path().string() + " is not a complete checkpoint: state.json is missing; resume from"));
}

TEST(CheckpointStore, StateThatJsonCannotHoldIsOurBugNotALoss) {
  const test::TempDir dir;
  CheckpointStore store(dir.path(), 1);
  auto contents = contents_of(1);
  contents.state["plan"]["cost"] = std::numeric_limits<double>::infinity();
  EXPECT_THROW(store.save(1, contents), BugError);
  contents = contents_of(1);
  contents.state["files"] = 1;
  EXPECT_THROW(store.save(1, contents), BugError);
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre());
}

}  // namespace
}  // namespace sluice::storage
