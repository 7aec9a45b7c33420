// The loop under a source of plans: what changes is how a run is done. Weights, optimizer state and the samples of
// every step stay, whatever the plans, in one process and in several; a plan that cannot be taken on leaves the old
// one.
#include "train/plan/plan_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "comm/processes.h"
#include "comm/ranks.h"
#include "engine/same_state.h"
#include "engine/state.h"
#include "memory_runs.h"
#include "train/plan/choose_plan.h"
#include "train/plan/composition.h"
#include "train/run/local_steps.h"
#include "train/run/loop.h"
#include "train/run/records.h"
#include "train/setup/run_state.h"
#include "train_run_support.h"

namespace sluice::train::test {
namespace {

using testing::HasSubstr;

// Notes which samples are read.
class RecordingSet final : public data::Dataset {
 public:
  explicit RecordingSet(std::shared_ptr<data::Dataset> set) : set_(std::move(set)) {}
  [[nodiscard]] const data::DatasetInfo& info() const override { return set_->info(); }
  [[nodiscard]] std::int64_t size() const override { return set_->size(); }
  [[nodiscard]] std::int64_t target(std::int64_t index) const override { return set_->target(index); }
  void read(std::int64_t index, std::span<std::uint8_t> sample) const override {
    set_->read(index, sample);
    const std::scoped_lock lock(mutex_);
    read_.push_back(index);
  }
  [[nodiscard]] std::vector<std::int64_t> taken() const {
    const std::scoped_lock lock(mutex_);
    return std::exchange(read_, {});
  }

 private:
  std::shared_ptr<data::Dataset> set_;
  mutable std::mutex mutex_;
  mutable std::vector<std::int64_t> read_;
};

// 24 samples, 10 a step, so the last of three steps of an epoch has 4. Batches are made when they are asked for.
config::Config run_of(const std::string& model) {
  config::Config config = small_run();
  config.model.name = model;
  config.model.image_size = 16;
  config.model.channels = 0;
  config.data.samples = 24;
  config.data.crop_padding = 2;
  config.train.global_batch = 10;
  config.train.steps = 200;
  config.train.optimizer = "adamw";
  config.train.lr = 0.003;
  config.train.precision = "fp64";
  return config;
}

struct Shape {
  int stages = 1;
  int replicas = 1;
  const char* schedule = "1f1b";
  int chunks = 1;
};

// A run as run_training() makes it, but for its files: those are there in rank 0 only.
class TestRun {
 public:
  explicit TestRun(const config::Config& config, const ProcessRank& process = {}, comm::Processes* processes = nullptr)
      : setup_(make_setup(config, process)), options_(engine_options(setup_, processes)) {
    set_ = std::make_shared<RecordingSet>(setup_.train_set);
    setup_.train_set = set_;
    options_.make_layers_without_values = [this, make = options_.make_layers_without_values] {
      if (fails_in > 0 && --fails_in == 0) throw OutOfMemoryError("planted");
      return make();
    };
    Plan plan = decide_plan(setup_);
    engine_.emplace(plan, options_);
  }

  [[nodiscard]] Plan plan(const Shape& shape) const {
    Plan plan{.replicas = shape.replicas,
              .chunks = shape.chunks,
              .global_batch = setup_.global_batch,
              .schedule = shape.schedule};
    std::vector<int> cut(shape.stages, setup_.layers / shape.stages);
    cut.back() += setup_.layers % shape.stages;
    plan.partition = {cut};
    plan.recompute.assign(shape.stages, false);
    return plan;
  }

  // Takes `plans` on in turn, one after each of the first steps.
  void train(std::int64_t steps, const std::vector<Plan>& plans) {
    const storage::RunDir run_dir(dir_ / "run", storage::RunDirMode::kResumeOrNew);
    report::Reporter reporter(run_dir, {}, {});
    storage::CheckpointStore checkpoints(run_dir.checkpoints_dir(), 3);
    KeptRecords kept({.reporter = reporter,
                      .checkpoints = checkpoints,
                      .capture = [](const Progress&) { return storage::CheckpointContents{}; },
                      .report_plan = [&](std::int64_t) { after_change(); },
                      .explain = [](const Error& error) { return error; }});
    EpochLog log("another rank", steps);
    const auto next = [&](std::int64_t steps_done) -> std::optional<Plan> {
      seen.push_back(set_->taken());
      if (steps_done == 0 || steps_done > std::ssize(plans)) return std::nullopt;
      before_ = engine_->capture();
      return plans[steps_done - 1];
    };
    const auto open_train_data = [&](data::Position position) {
      return std::make_unique<data::Loader>(*set_, train_loader_options(setup_, engine_->plan()), position);
    };
    LocalSteps own_steps(open_train_data, /*reads_features=*/false, {});
    Loop loop({.engine = *engine_,
               .steps = own_steps,
               .open_eval_data =
                   [&] {
                     return std::make_unique<data::Loader>(*setup_.test_set,
                                                           eval_loader_options(setup_, engine_->plan()));
                   },
               .plans = {.next = next, .refused = [&](std::int64_t step) { refused.push_back(step); }},
               .records = setup_.process.rank == 0 ? static_cast<Records&>(kept) : log},
              {.total_steps = steps, .train = {.eval_every_steps = 1'000'000}, .lr = lr_schedule(setup_)}, {});
    loop.run();
    seen.push_back(set_->taken());
  }

  [[nodiscard]] engine::Engine& engine() { return *engine_; }
  [[nodiscard]] std::vector<nlohmann::json> events(const std::string& name) const {
    return events_of(dir_ / "run", name);
  }
  [[nodiscard]] std::vector<double> losses() const {
    std::vector<double> losses;
    for (const auto& step : events("step")) losses.push_back(step.at("loss"));
    return losses;
  }

  int fails_in = 0;  // models that are made until one fails
  std::function<void(const engine::State& before)> changed;
  std::vector<std::int64_t> refused;
  std::vector<std::vector<std::int64_t>> seen;  // samples read by this process before each step, and after the last one

 private:
  void after_change() const {
    if (changed) changed(before_);
  }

  sluice::test::TempDir dir_;
  Setup setup_;
  engine::EngineOptions options_;
  std::shared_ptr<RecordingSet> set_;
  std::optional<engine::Engine> engine_;
  engine::State before_;
};

void expect_same_bits(const engine::State& one, const engine::State& other) {
  EXPECT_EQ(one.optimizer_steps, other.optimizer_steps);
  for (const auto member : {&engine::State::model, &engine::State::optimizer}) {
    ASSERT_EQ((one.*member).size(), (other.*member).size());
    for (const auto& [name, tensor] : one.*member) EXPECT_TRUE(at::equal(tensor, (other.*member).at(name))) << name;
  }
}

void expect_close(const storage::TensorMap& one, const storage::TensorMap& other, double tolerance) {
  for (const auto& [name, tensor] : one) {
    const at::Tensor& expected = other.at(name);
    EXPECT_LE((tensor - expected).norm().item<double>(), tolerance * (expected.norm().item<double>() + 1)) << name;
  }
}

const std::vector<Shape> kShapes{{3, 1, "1f1b", 2},  {1, 2, "1f1b", 1}, {2, 2, "gpipe", 2}, {2, 1, "zb-h1", 4},
                                 {3, 2, "gpipe", 1}, {1, 1, "1f1b", 3}, {1, 3, "1f1b", 2},  {2, 3, "1f1b", 2}};

using PlanSourceTest = WithCountedMemory;

TEST_F(PlanSourceTest, EveryChangeKeepsTheStateAndTheLossesOfAnUnchangedRun) {
  for (const char* model : {"vit", "resnet8"}) {
    SCOPED_TRACE(model);
    TestRun run(run_of(model)), unchanged(run_of(model));
    std::vector<Plan> plans;
    for (const Shape& shape : kShapes) plans.push_back(run.plan(shape));
    std::vector<Plan> taken;
    run.changed = [&](const engine::State& before) {
      taken.push_back(run.engine().plan());
      expect_same_bits(run.engine().capture(), before);
    };
    run.train(12, plans);
    EXPECT_EQ(taken, plans);
    EXPECT_EQ(run.events("transition").size(), plans.size());
    EXPECT_EQ(run.events("fault").size(), 0U);
    if (std::string(model) == "resnet8") continue;  // batch-norm is of micro-batches
    unchanged.train(12, {});
    for (std::size_t i = 0; i < 12; ++i)
      EXPECT_NEAR(run.losses()[i], unchanged.losses()[i], 1e-10 * unchanged.losses()[i]) << "step " << i + 1;
    expect_close(run.engine().capture().model, unchanged.engine().capture().model, 1e-10);
  }
}

// body(run, rank) in two threads, each a process of a run.
void in_two_processes(const config::Config& config, const std::function<void(TestRun& run, int rank)>& body) {
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(2, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, 2, port), {},
                              {std::chrono::minutes(1), std::chrono::minutes(1)});
    TestRun run(config, {.rank = rank, .processes = 2}, &processes);
    body(run, rank);
    engine::check_same_state(run.engine().composition(), "at the end");
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

// 10 samples are 6 + 4 over two processes of three replicas, and 5 + 5 of one.
TEST_F(PlanSourceTest, EverySampleIsSeenOnceInAnEpochWhateverTheShares) {
  constexpr std::int64_t kSteps = 9;  // three epochs
  std::vector<std::vector<std::int64_t>> seen(kSteps + 1);
  std::vector<std::vector<std::size_t>> shares(2);
  std::mutex mutex;
  engine::State end;
  in_two_processes(run_of("vit"), [&](TestRun& run, int rank) {
    std::vector<Plan> plans;
    for (const Shape& shape : std::vector<Shape>{{1, 3}, {3, 1, "gpipe", 2}, {2, 3}, {1, 2}, {2, 1}, {1, 3}})
      plans.push_back(run.plan(shape));
    run.train(kSteps, plans);
    const std::scoped_lock lock(mutex);
    for (std::size_t i = 0; i < run.seen.size(); ++i) {
      seen[i].insert(seen[i].end(), run.seen[i].begin(), run.seen[i].end());
      shares[rank].push_back(run.seen[i].size());
    }
    end = run.engine().capture();
  });
  const std::vector<std::vector<std::size_t>> expected{{0, 5, 6, 2, 6, 6, 2, 6, 6, 3}, {0, 5, 4, 2, 4, 4, 2, 4, 4, 1}};
  EXPECT_EQ(shares, expected);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> of_epoch;
    for (int step = 1; step <= 3; ++step) {
      const auto& of_step = seen[3 * epoch + step];
      of_epoch.insert(of_epoch.end(), of_step.begin(), of_step.end());
    }
    std::ranges::sort(of_epoch);
    EXPECT_EQ(of_epoch, data::sequential_order(24)) << "epoch " << epoch;
  }
  TestRun alone(run_of("vit"));
  alone.train(kSteps, {});
  expect_close(end.model, alone.engine().capture().model, 1e-10);
}

struct Held {
  std::size_t threads, descriptors;
  std::uint64_t host;
  std::vector<std::uint64_t> devices;

  bool operator==(const Held&) const = default;
};

Held held_now() {
  Held held{sluice::test::names_in("/proc/self/task").size(),
            sluice::test::names_in("/proc/self/fd").size(),
            device::host_memory_use().current,
            {}};
  for (int i = 0; i < 6; ++i) held.devices.push_back(device::memory_use({device::DeviceKind::kCpu, i}).current);
  return held;
}

TEST_F(PlanSourceTest, FiftyChangesLeaveNothingBehind) {
  config::Config config = run_of("resnet8");
  config.data.samples = 10;  // every step is like the others
  TestRun run(config);
  std::vector<Plan> plans;
  for (int i = 0; i < 54; ++i) plans.push_back(run.plan(kShapes[i % 3 == 0 ? 4 : i % 3 == 1 ? 5 : 7]));
  std::map<int, std::vector<Held>> held;  // by the plan that is there
  int changes = 0;
  run.changed = [&](const engine::State&) { held[changes++ % 3].push_back(held_now()); };
  run.train(56, plans);
  EXPECT_EQ(changes, 54);
  for (const auto& [shape, all] : held) {
    for (std::size_t i = 2; i < all.size(); ++i) {
      EXPECT_EQ(all[i].threads, all[1].threads);
      EXPECT_EQ(all[i].descriptors, all[1].descriptors);
      EXPECT_EQ(all[i].host, all[1].host) << "bytes of tensors on the host, change " << 3 * i + shape;
      EXPECT_EQ(all[i].devices, all[1].devices);
    }
  }
}

TEST_F(PlanSourceTest, AFailureInTheMiddleOfAChangeIsAFaultAndTheOldPlanGoesOn) {
  TestRun run(run_of("resnet8")), unchanged(run_of("resnet8"));
  run.fails_in = 2;  // the second replica's
  testing::internal::CaptureStderr();
  run.train(6, {run.plan({3, 2}), run.engine().plan()});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the one before stays"));
  unchanged.train(6, {});
  EXPECT_EQ(run.losses(), unchanged.losses());
  expect_same_bits(run.engine().capture(), unchanged.engine().capture());
  EXPECT_EQ(run.refused, std::vector<std::int64_t>{1});
  EXPECT_EQ(run.events("transition").size(), 1U) << "the second was taken";
  ASSERT_EQ(run.events("fault").size(), 1U);
  EXPECT_EQ(run.events("fault")[0].at("step"), 1);
  EXPECT_THAT(run.events("fault")[0].at("what"), HasSubstr("planted"));
}

TEST_F(PlanSourceTest, APlanThatAMemoryLimitHasNoRoomForIsRefusedAndTheLimitHolds) {
  config::Config config = run_of("vit");
  config.pipeline.stages = 2;
  config.pipeline.partition = {4, 6};
  config.pipeline.chunks = 10;
  std::vector<double> unchanged;
  std::uint64_t whole = 0;  // parameters, gradients and two states of adamw on one device
  {
    TestRun run(config);
    run.train(6, {});
    unchanged = run.losses();
    whole = 4 * run.engine().composition().parameter_count() * sizeof(double);
  }
  config.device.memory_limit.bytes = static_cast<std::int64_t>(whole - 1);
  TestRun run(config);
  for (int i = 0; i < 4; ++i) device::reset_peak_memory({device::DeviceKind::kCpu, i});
  run.train(6, {run.plan({1, 1, "1f1b", 10}), run.plan({3, 1, "1f1b", 10}), run.plan({1, 2, "1f1b", 5}),
                run.plan({2, 1, "1f1b", 5})});
  EXPECT_EQ(run.refused, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(run.events("transition").size(), 2U);
  EXPECT_EQ(run.events("fault").size(), 2U);
  for (int i = 0; i < 4; ++i) EXPECT_LT(device::memory_use({device::DeviceKind::kCpu, i}).peak, whole) << "cpu:" << i;
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(run.losses()[i], unchanged[i], 1e-10) << "step " << i + 1;
}

TEST_F(PlanSourceTest, WhereOneProcessFailsAllGoOnWithTheOldPlan) {
  std::vector<double> losses;
  in_two_processes(run_of("resnet8"), [&](TestRun& run, int rank) {
    if (rank == 1) run.fails_in = 1;
    run.train(6, {run.plan({3, 1}), run.plan({2, 1})});
    EXPECT_EQ(run.refused, std::vector<std::int64_t>{1});
    EXPECT_EQ(run.engine().plan(), run.plan({2, 1}));
    if (rank == 0) losses = run.losses();
  });
  in_two_processes(run_of("resnet8"), [&](TestRun& run, int rank) {
    run.train(6, {});
    if (rank == 0) {
      for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(losses[i], run.losses()[i], 1e-10) << "step " << i + 1;
    }
  });
}

}  // namespace
}  // namespace sluice::train::test
