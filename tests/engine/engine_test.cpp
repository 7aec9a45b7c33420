// A plan that changes in the running process changes nothing else: steps go on as if it had always been there.
// In float64; with the same plan to the last bit, with another to 1e-10 of the reference, which is one device.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <filesystem>
#include <limits>

#include "comm/processes.h"
#include "comm/ranks.h"
#include "core/concat.h"
#include "core/error.h"
#include "data/sampler.h"
#include "engine/reference.h"
#include "engine/same_state.h"
#include "support/graph_fakes.h"

namespace sluice::engine::test {
namespace {

using testing::HasSubstr;

constexpr double kTolerance = 1e-10;
const optim::OptimizerOptions kAdam{.kind = "adamw", .weight_decay = 0.01};

Plan plan_of(int stages, int replicas, const std::string& schedule, int chunks, int layers) {
  Plan plan{.replicas = replicas, .chunks = chunks, .global_batch = 16, .schedule = schedule};
  std::vector<int> cut(stages, layers / stages);
  cut.back() += layers % stages;
  plan.partition = {cut};
  plan.recompute.assign(stages, false);
  return plan;
}

struct Shape {
  int stages;
  int replicas;
  const char* schedule;
  int chunks;
};

class EngineTest : public testing::Test {
 protected:
  [[nodiscard]] EngineOptions options(std::shared_ptr<Communicators> communicators = nullptr) const {
    return {.compose = {.model_name = model_.name,
                        .make_layers = [model = model_] { return models::make_model(model).layers; },
                        .optimizer = kAdam,
                        .communicators = std::move(communicators)},
            .make_layers_without_values = [model = model_] { return models::make_without_values(model).layers; },
            .step = {.seed = 7},
            .devices_of =
                [](const Plan& plan) {
                  const int slots = plan.replicas * plan.devices();
                  if (slots > 6) throw ConfigError("device.list has 6 names");
                  DeviceChoice choice;
                  for (int i = 0; i < slots; ++i) choice.devices.push_back({device::DeviceKind::kCpu, i});
                  return choice;
                }};
  }
  [[nodiscard]] Plan plan(const Shape& shape) const {
    return plan_of(shape.stages, shape.replicas, shape.schedule, shape.chunks, models::count_layers(model_));
  }

  // Steps [from, to), each of another batch.
  static std::vector<double> train(Engine& engine, std::int64_t from, std::int64_t to) {
    std::vector<double> losses;
    for (std::int64_t number = from; number < to; ++number)
      losses.push_back(engine.step().run(make_batch(13 + number % 3, number), number, 0.01).loss);
    return losses;
  }

  static void expect_same_bits(const State& one, const State& other) {
    EXPECT_EQ(one.optimizer_steps, other.optimizer_steps);
    for (const auto member : {&State::model, &State::optimizer}) {
      ASSERT_EQ((one.*member).size(), (other.*member).size());
      for (const auto& [name, tensor] : one.*member) EXPECT_TRUE(at::equal(tensor, (other.*member).at(name))) << name;
    }
  }

  models::ModelOptions model_ = small_model("resnet8");
  Shape first_{2, 2, "1f1b", 2};
};

TEST_F(EngineTest, TheSamePlanTwiceChangesNoBitOfTheNextTwentySteps) {
  Engine engine(plan(first_), options()), undisturbed(plan(first_), options());
  EXPECT_EQ(train(engine, 0, 3), train(undisturbed, 0, 3));
  engine.apply(engine.plan());
  engine.apply(Plan(engine.plan()));
  EXPECT_EQ(train(engine, 3, 23), train(undisturbed, 3, 23));
  expect_same_bits(engine.capture(), undisturbed.capture());
}

TEST_F(EngineTest, AnotherPlanTakesTheStateOverAndGivesTheReferencesGradients) {
  for (const char* name : {"toy_cnn", "vit"}) {
    model_ = small_model(name);
    Engine engine(plan(first_), options());
    std::int64_t number = 0;
    for (const Shape& shape : std::initializer_list<Shape>{
             {1, 1, "1f1b", 1}, {3, 1, "gpipe", 4}, {2, 2, "1f1b", 2}, {1, 2, "1f1b", 3}, {3, 2, "zb-h1", 3}}) {
      SCOPED_TRACE(concat(name, ": ", shape.stages, " stages, ", shape.replicas, " replicas, ", shape.schedule));
      train(engine, number, number + 2);
      number += 2;
      const State before = engine.capture();
      engine.apply(plan(shape));
      EXPECT_EQ(engine.plan(), plan(shape));
      expect_same_bits(engine.capture(), before);

      ReferenceModel reference(model_);
      reference.load(before.model);
      const pipeline::MicroBatch batch = make_batch(13, number);
      const auto pieces = pieces_of(batch, shape.replicas, shape.chunks);
      const ReferenceStep expected = reference.step(pieces, {.training = true, .seed = 7, .step = number});
      const auto found = engine.step().compute_gradients({batch}, number, shape.chunks);
      EXPECT_NEAR(found.stats.loss, expected.loss, kTolerance * expected.loss);
      storage::TensorMap gradients = gradient_tensors(engine.composition());
      for (auto& [parameter, gradient] : gradients) gradient = gradient / found.divisor;
      const WorstError worst = worst_error(gradients, expected.gradients);
      EXPECT_LE(worst.error, kTolerance) << worst.name;
      engine.load(before, "before");  // running statistics have taken the batch in
    }
  }
}

// A step that is cut off has changed running statistics, but no weights.
TEST_F(EngineTest, WhatASecondThreadSavesInAStepIsTheStateBeforeIt) {
  Engine engine(plan(first_), options());
  train(engine, 0, 2);
  const State before = engine.capture();
  engine.remember_buffers();
  bool was_asked = false;
  const auto same_as_before = [&] {
    was_asked = true;
    State now = engine.capture();
    const bool has_statistics = now.model.contains("bn1.running_mean");
    EXPECT_TRUE(has_statistics);
    EXPECT_FALSE(at::equal(now.model.at("bn1.running_mean"), before.model.at("bn1.running_mean")));
    now.model = engine.model_between_steps();
    expect_same_bits(now, before);
  };
  engine.step().run(make_batch(13, 2), 2, 0.01, {.before_update = same_as_before});
  EXPECT_TRUE(was_asked);
  engine.forget_buffers();
  State after = engine.capture();
  after.model = engine.model_between_steps();
  expect_same_bits(after, engine.capture());
}

TEST_F(EngineTest, OtherChunksComposeNothingAnew) {
  Engine engine(plan(first_), options());
  const auto* const executor = engine.composition().executor.get();
  Plan more = engine.plan();
  more.chunks = 4;
  engine.apply(more);
  EXPECT_EQ(engine.plan().chunks, 4);
  EXPECT_EQ(engine.composition().executor.get(), executor);
}

// Another plan has actions, memory and threads of its own.
// Else a hang in the first step under the new plan would be noticed an hour later.
TEST_F(EngineTest, TheLimitOfAStepStaysWhatTheRunHasMeasured) {
  Engine engine(plan(first_), options());
  const auto limit = [&] { return engine.composition().executor->training_limit(); };
  EXPECT_EQ(limit(), pipeline::TimeLimit::kFirst);
  train(engine, 0, 1);
  const auto measured = limit();
  EXPECT_LT(measured, pipeline::TimeLimit::kFirst);
  engine.apply(plan({3, 1, "gpipe", 4}));
  EXPECT_EQ(limit(), measured);
}

TEST_F(EngineTest, WhatIsRecordedGoesWithThePlan) {
  sluice::test::GraphLog log;
  EngineOptions recording = options();
  recording.step.make_graphs = sluice::test::fake_graphs<sluice::test::WorkCalledAgain>(log);
  Engine engine(plan(first_), recording), plain(plan(first_), options());
  std::int64_t number = 0;
  int sequences = 0;
  for (const Shape& shape : std::initializer_list<Shape>{first_, {3, 1, "zb-h1", 4}, {3, 1, "zb-h1", 2}, first_}) {
    SCOPED_TRACE(concat(shape.stages, " stages, ", shape.replicas, " replicas, ", shape.chunks, " chunks"));
    engine.apply(plan(shape));
    plain.apply(plan(shape));
    for (const int end = static_cast<int>(number) + 4; number < end; ++number) {
      const pipeline::MicroBatch batch = make_batch(16, number);
      EXPECT_EQ(engine.step().run(batch, number, 0.01).loss, plain.step().run(batch, number, 0.01).loss);
    }
    expect_same_bits(engine.capture(), plain.capture());
    EXPECT_EQ(log.sequences, sequences += shape.stages * shape.replicas);
  }
}

// On the other device, each stage does what 1F1B has it do.
TEST_F(EngineTest, AnOrderIsAPlanLikeAnother) {
  Engine engine(plan(first_), options()), undisturbed(plan(first_), options());
  EXPECT_EQ(train(engine, 0, 2), train(undisturbed, 0, 2));
  Plan ordered = plan(first_);
  ordered.schedule = Plan::kFromFile;
  ordered.schedule_text = "1F0 1B0 1F1 1B1\n0F0 0F1 0B0 0B1\n";
  engine.apply(ordered);
  EXPECT_EQ(engine.composition().executor->owners(), (std::vector<int>{1, 0}));
  EXPECT_EQ(train(engine, 2, 5), train(undisturbed, 2, 5));
  Plan more = ordered;
  more.chunks = 3;
  EXPECT_THROW(engine.apply(more), PlanRefused) << "it has two";
  EXPECT_EQ(engine.plan(), ordered);
  engine.apply(plan(first_));
  EXPECT_EQ(train(engine, 5, 7), train(undisturbed, 5, 7));
  expect_same_bits(engine.capture(), undisturbed.capture());
}

TEST_F(EngineTest, ACaptureStaysAsItWasWhileTheEngineTrainsOn) {
  Engine engine(plan(first_), options()), undisturbed(plan(first_), options());
  train(engine, 0, 2);
  train(undisturbed, 0, 2);
  const State captured = engine.capture();
  train(engine, 2, 4);
  expect_same_bits(captured, undisturbed.capture());
}

int entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<int>(std::distance(begin(all), end(all)));
}

TEST_F(EngineTest, FiftyChangesLeaveNoThreadAndNoDescriptorMore) {
  Engine engine(plan(first_), options());
  const auto round = [&](int number) {
    engine.apply(plan(number % 2 == 0 ? Shape{3, 2, "1f1b", 2} : Shape{1, 1, "1f1b", 1}));
    train(engine, number, number + 1);
  };
  for (int number = 0; number < 4; ++number) round(number);
  const int threads = entries("/proc/self/task"), descriptors = entries("/proc/self/fd");
  for (int number = 4; number < 54; ++number) round(number);
  EXPECT_EQ(entries("/proc/self/task"), threads);
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
}

TEST_F(EngineTest, APlanThatIsRefusedLeavesTheOldOneRunning) {
  Engine engine(plan(first_), options()), undisturbed(plan(first_), options());
  train(engine, 0, 2);
  train(undisturbed, 0, 2);
  EXPECT_THROW(engine.apply(plan({3, 3, "1f1b", 2})), PlanRefused) << "no so many devices";
  EXPECT_THROW(engine.apply(plan({2, 2, "no-such-schedule", 2})), PlanRefused);
  EXPECT_THROW(engine.apply(plan({2, 2, "1f1b", 0})), PlanRefused);
  Plan short_cut = plan(first_);
  short_cut.partition = {{1, 1}};
  EXPECT_THROW(engine.apply(short_cut), PlanRefused);
  EXPECT_EQ(engine.plan(), undisturbed.plan());
  EXPECT_EQ(train(engine, 2, 6), train(undisturbed, 2, 6));
  expect_same_bits(engine.capture(), undisturbed.capture());
}

// The last update may have ruined weights that no loss has shown yet.
TEST_F(EngineTest, WeightsThatAreNotFiniteAreADivergenceAndNoBug) {
  Engine engine(plan(first_), options());
  train(engine, 0, 2);
  const State before = engine.capture();
  const auto& parameters = engine.composition().executor->stage(ReplicaId{0}, StageId{1}).parameters();
  parameters.values()[0].fill_(std::numeric_limits<double>::quiet_NaN());
  try {
    engine.apply(plan({3, 1, "1f1b", 2}));
    ADD_FAILURE() << "it was taken on";
  } catch (const DivergedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("before a change of plan: "));
  }
  EXPECT_EQ(engine.plan(), plan(first_));
  engine.load(before, "before");
  train(engine, 2, 3);
}

TEST_F(EngineTest, AFailureInTheMiddlePutsTheOldPlanBack) {
  const auto fails = std::make_shared<int>(0);
  EngineOptions failing = options();
  failing.make_layers_without_values = [fails, make = failing.make_layers_without_values] {
    if (*fails > 0 && --*fails == 0) throw OutOfMemoryError("planted");
    return make();
  };
  Engine engine(plan(first_), failing), undisturbed(plan(first_), options());
  train(engine, 0, 2);
  train(undisturbed, 0, 2);
  for (const int replica : {1, 2}) {
    *fails = replica;
    try {
      engine.apply(plan({3, 2, "1f1b", 2}));
      ADD_FAILURE() << "it did not fail";
    } catch (const PlanRefused& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kOutOfMemory);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("planted"), HasSubstr("the one before stays")));
    }
    EXPECT_EQ(engine.plan(), undisturbed.plan());
  }
  EXPECT_EQ(train(engine, 2, 6), train(undisturbed, 2, 6));
  expect_same_bits(engine.capture(), undisturbed.capture());
}

// Each of two processes takes its share of every batch, whatever number of replicas it has.
pipeline::MicroBatch share_of(const pipeline::MicroBatch& whole, int rank, int replicas) {
  const auto slice = data::share_slice(
      whole.samples(),
      {.first = std::int64_t{rank} * replicas, .count = replicas, .parts = std::int64_t{2} * replicas});
  const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(0, slice.begin, slice.count); };
  return {{part(whole.inputs[0])}, {part(whole.targets[0])}, part(whole.sample_ids)};
}

TEST_F(EngineTest, TwoProcessesChangeTogetherAndConnectNothingTwice) {
  const int port = comm::test::free_port();
  std::mutex mutex;
  std::vector<State> ends;
  const auto failures = comm::test::run_ranks(2, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, 2, port), {},
                              {std::chrono::minutes(1), std::chrono::minutes(1)});
    const auto train_share = [&](Engine& engine, std::int64_t from, std::int64_t to) {
      for (std::int64_t number = from; number < to; ++number) {
        const pipeline::MicroBatch whole = make_batch(13 + number % 3, number);
        (void)engine.step().run({share_of(whole, rank, engine.plan().replicas), whole.samples(), number}, number, 0.01);
      }
    };
    Engine engine(plan(first_), options(std::make_shared<Communicators>(processes)));
    train_share(engine, 0, 2);
    engine.apply(engine.plan());
    train_share(engine, 2, 4);
    const State before = engine.capture();
    for (const Shape& shape : {Shape{1, 1, "1f1b", 2}, Shape{3, 1, "gpipe", 2}, first_}) {
      engine.apply(plan(shape));
      expect_same_bits(engine.capture(), before);
      check_same_state(engine.composition(), "after a change");
    }
    train_share(engine, 4, 8);
    const std::scoped_lock lock(mutex);
    ends.push_back(engine.capture());
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  // One process with the same replicas, undisturbed: other sums in another order, so not to the last bit.
  ASSERT_EQ(ends.size(), 2U);
  expect_same_bits(ends[0], ends[1]);
  Engine alone(plan({2, 4, "1f1b", 2}), [&] {
    EngineOptions wide = options();
    wide.devices_of = [](const Plan& plan) {
      DeviceChoice choice;
      for (int i = 0; i < plan.replicas * plan.devices(); ++i) choice.devices.push_back({device::DeviceKind::kCpu, i});
      return choice;
    };
    return wide;
  }());
  train(alone, 0, 8);
  const WorstError worst = worst_error(ends[0].model, alone.capture().model);
  EXPECT_LE(worst.error, 1e-9) << worst.name;
}

// It has fewer devices, fails while it composes, or has other GPUs for the stages.
TEST_F(EngineTest, WhereOneProcessCannotTakeThePlanOnAllKeepTheOldOne) {
  const int port = comm::test::free_port();
  std::atomic<int> put_back = 0;
  const auto failures = comm::test::run_ranks(2, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, 2, port), {},
                              {std::chrono::minutes(1), std::chrono::minutes(1)});
    EngineOptions own = options(std::make_shared<Communicators>(processes));
    const auto fails = std::make_shared<bool>(false), refuses = std::make_shared<bool>(false),
               shares = std::make_shared<bool>(false);
    own.make_layers_without_values = [fails, make = own.make_layers_without_values] {
      if (std::exchange(*fails, false)) throw OutOfMemoryError("planted");
      return make();
    };
    own.devices_of = [refuses, shares, rank, choose = own.devices_of](const Plan& plan) {
      if (std::exchange(*refuses, false)) throw ConfigError("planted");
      DeviceChoice choice = choose(plan);
      if (std::exchange(*shares, false)) {  // one GPU in rank 0
        for (device::Device& each : choice.devices) each = {device::DeviceKind::kCuda, each.index * rank};
      }
      return choice;
    };
    Engine engine(plan(first_), own);
    const State before = engine.capture();
    for (const auto& planted : {fails, refuses, shares}) {
      *planted = rank == 1 || planted == shares;
      try {
        engine.apply(plan({3, 1, "1f1b", 1}));  // of more stages: new communicators
      } catch (const PlanRefused& error) {
        EXPECT_THAT(error.what(), HasSubstr("the one before stays"));
        ++put_back;
      }
    }
    EXPECT_EQ(engine.plan(), plan(first_));
    expect_same_bits(engine.capture(), before);
    check_same_state(engine.composition(), "after it");
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  EXPECT_EQ(put_back, 6);
}

}  // namespace
}  // namespace sluice::engine::test
