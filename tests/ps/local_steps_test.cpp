// Workers with local steps compared with devices that train alone and are averaged by hand, in float64.
#include <gtest/gtest.h>

#include "ps/workers.h"

namespace sluice::ps::test {
namespace {

using engine::test::kAdam;
using engine::test::kLr;
using engine::test::Shape;
using storage::TensorMap;

constexpr double kClose = 1e-10;
constexpr int kLocalRounds = 3;
const optim::OptimizerOptions kHeavy{.kind = "momentum", .momentum = 0.9, .weight_decay = 0.01};

struct Local {
  Shape shape;
  std::int64_t steps = 1;
  std::int64_t samples = 1;  // of a step
  double factor = 1;
};

class LocalStepsTest : public engine::test::SyncTest {
 protected:
  static std::unique_ptr<Workers> make_workers(const std::vector<Local>& all, const ServerOptions& options,
                                               const optim::OptimizerOptions& inner) {
    return std::make_unique<Workers>(
        static_cast<int>(all.size()), options, /*shards=*/2,
        [&](int w, engine::SyncFactory factory) { return make_engine(all[w].shape, factory, inner); });
  }
  static pipeline::MicroBatch batch_of_worker(const Local& local, int worker, std::int64_t number) {
    const std::int64_t seed = 100 * worker + number;
    return local.shape.model == std::string("gpt2") ? engine::test::make_token_batch(local.samples, seed)
                                                    : engine::test::make_batch(local.samples, seed);
  }
  // Returns the push.
  static PushRecord run_round(Workers& workers, const Local& local, int worker, int round) {
    workers.syncs[worker]->begin_round({.steps = local.steps, .factor = local.factor});
    for (int step = 0; step < local.steps; ++step) {
      EXPECT_FALSE(workers.links[worker]->take()) << "a push before the round is over";
      const std::int64_t number = round * local.steps + step;
      (void)workers.engines[worker]->step().run({batch_of_worker(local, worker, number)}, number, kLr);
    }
    return workers.deliver(worker);
  }
  // Runs the same steps on one device from given weights, keeping its optimizer state. Returns the weights.
  static TensorMap train_alone(engine::Engine& alone, const Local& local, int worker, int round,
                               const TensorMap& from) {
    engine::State state = alone.capture();
    for (const auto& [name, values] : from) state.model.at(name) = values.clone();
    alone.load(state, "the test");
    for (int step = 0; step < local.steps; ++step) {
      const std::int64_t number = round * local.steps + step;
      (void)alone.step().run({batch_of_worker(local, worker, number)}, number, kLr);
    }
    return weights_of(alone, from);
  }
  static std::vector<std::unique_ptr<engine::Engine>> make_alone(const std::vector<Local>& all,
                                                                 const optim::OptimizerOptions& inner) {
    std::vector<std::unique_ptr<engine::Engine>> alone;
    for (const Local& local : all)
      alone.push_back(make_engine({local.shape.model, 1, 1, "1f1b", local.shape.chunks}, engine::make_sync, inner));
    return alone;
  }
  static void expect_equal(const TensorMap& ours, const TensorMap& expected, int round) {
    const engine::test::WorstError worst = engine::test::worst_error(ours, expected);
    EXPECT_LE(worst.error, kClose) << worst.name << " after round " << round;
  }
};

TEST_F(LocalStepsTest, LocalSgdIsTheMeanByTargetsOfWhatDevicesAloneCameTo) {
  const std::vector<Local> vits{{{"vit", 2, 2, "1f1b", 3}, 3, 13}, {{"vit", 1, 1, "1f1b", 1}, 3, 4}};
  const std::vector<Local> tied{{{"gpt2", 3, 1, "zb-h1", 3}, 2, 5}, {{"gpt2", 1, 1, "1f1b", 2}, 2, 3}};
  const std::vector<Local> normed{{{"resnet8", 2, 1, "1f1b", 2}, 2, 6}, {{"resnet8", 1, 1, "1f1b", 2}, 2, 8}};
  for (const auto& all : {vits, tied, normed}) {
    const auto& inner = all[0].shape.model == std::string("vit") ? kAdam : kHeavy;
    const auto workers = make_workers(
        all,
        {.policy = preset_policy("local_sgd", 2), .optimizer = {.kind = "sgd"}, .lr = [](const auto&) { return 0.0; }},
        inner);
    const auto alone = make_alone(all, inner);
    for (int round = 0; round < kLocalRounds; ++round) {
      const TensorMap before = workers->weights();
      std::vector<TensorMap> own;
      std::vector<double> targets;
      for (int w = 0; w < 2; ++w) {
        own.push_back(train_alone(*alone[w], all[w], w, round, before));
        const PushRecord pushed = run_round(*workers, all[w], w, round);
        EXPECT_EQ(pushed.examples, all[w].steps * all[w].samples);
        EXPECT_EQ(pushed.local_steps, all[w].steps);
        EXPECT_EQ(pushed.base_version, round);
        targets.push_back(static_cast<double>(pushed.targets));
      }
      ASSERT_EQ(workers->server->advance(0).size(), 1U);
      TensorMap expected;
      for (const auto& [name, values] : own[0])
        expected[name] = (targets[0] * values + targets[1] * own[1].at(name)) / (targets[0] + targets[1]);
      expect_equal(workers->weights(), expected, round);
    }
  }
}

// Not with Adam inside: it divides gradients that are nothing but rounding, of the biases of keys, by their own size.
TEST_F(LocalStepsTest, DiLoCoIsANesterovStepOnWhatDevicesAloneHaveMoved) {
  constexpr double kOuterLr = 0.7, kOuterMomentum = 0.9;
  const std::vector<Local> all{{{"vit", 2, 1, "1f1b", 3}, 4, 6}, {{"vit", 1, 1, "1f1b", 1}, 2, 9}};
  const auto workers = make_workers(all,
                                    {.policy = preset_policy("diloco", 2),
                                     .optimizer = {.kind = "momentum", .momentum = kOuterMomentum, .nesterov = true},
                                     .lr = [](const auto&) { return kOuterLr; }},
                                    kHeavy);
  const auto alone = make_alone(all, kHeavy);
  TensorMap weights = workers->weights(), momentum;
  for (auto& [name, values] : weights) momentum[name] = at::zeros_like(values), values = values.clone();
  for (int round = 0; round < kLocalRounds; ++round) {
    std::vector<TensorMap> own;
    for (int w = 0; w < 2; ++w) {
      own.push_back(train_alone(*alone[w], all[w], w, round, weights));
      EXPECT_EQ(run_round(*workers, all[w], w, round).payload, Payload::kDelta);
    }
    ASSERT_EQ(workers->server->advance(0).size(), 1U);
    const double of_0 = 24.0 * 24 / 4, of_1 = 18.0 * 18 / 2;  // targets^2 / steps
    for (auto& [name, values] : weights) {
      const at::Tensor moved = (of_0 * (values - own[0].at(name)) + of_1 * (values - own[1].at(name))) / (of_0 + of_1);
      momentum[name] = kOuterMomentum * momentum[name] + moved;
      values = values - kOuterLr * (moved + kOuterMomentum * momentum[name]);
    }
    expect_equal(workers->weights(), weights, round);
  }
}

TEST_F(LocalStepsTest, WeightsOfDualBatchSizesAreMixedInByTheirFactor) {
  const std::vector<Local> all{{{"resnet8", 2, 1, "1f1b", 2}, 2, 9, 1}, {{"resnet8", 1, 1, "1f1b", 2}, 4, 4, 0.8}};
  const auto workers = make_workers(
      all,
      {.policy = preset_policy("dual_batch", 2), .optimizer = {.kind = "sgd"}, .lr = [](const auto&) { return 0.0; }},
      kHeavy);
  const auto alone = make_alone(all, kHeavy);
  TensorMap weights = workers->weights();
  for (auto& [name, values] : weights) values = values.clone();
  for (int round = 0; round < kLocalRounds; ++round) {
    for (const int w : {1, 0}) {
      const TensorMap own = train_alone(*alone[w], all[w], w, round, weights);
      EXPECT_EQ(run_round(*workers, all[w], w, round).factor, all[w].factor);
      ASSERT_EQ(workers->server->advance(0).size(), 1U);
      const double f = all[w].factor;
      for (auto& [name, values] : weights) values = ((2 - f) * values + f * own.at(name)) / 2;
      expect_equal(workers->weights(), weights, round);
    }
  }
}

// Returns the same weights for every pull, like a server for a worker that joins anew.
class SameWeights final : public ServerLink {
 public:
  explicit SameWeights(const std::vector<comm::SyncedStage>& stages)
      : layout_(layout_of(stages, {})),
        weights_{.shards = to_shards(layout_, values_of(stages)), .statistics = statistics_of(stages)} {}
  [[nodiscard]] const Layout& layout() const override { return layout_; }
  [[nodiscard]] std::int64_t pull(Tensors& into) override {
    into.copy_from(weights_);
    return 5;
  }
  void push(Push push) override { pushed.push_back(std::move(push)); }

  std::vector<Push> pushed;

 private:
  Layout layout_;
  Tensors weights_;
};

TEST_F(LocalStepsTest, ARoundThatIsGivenUpLeavesNothing) {
  const Local local{{"resnet8", 1, 1, "1f1b", 1}, 1, 5};
  std::vector<Push> pushes;
  for (const bool gives_up : {true, false}) {
    std::shared_ptr<SameWeights> link;
    std::shared_ptr<WorkerSync> sync;
    const auto worker =
        make_engine(local.shape,
                    [&](engine::SyncRequest request) {
                      link = std::make_shared<SameWeights>(request.stages);
                      const WorkerSyncOptions options{.payload = Payload::kDelta};
                      return sync = std::make_shared<WorkerSync>(std::move(request.stages), 400, link, options);
                    },
                    {.kind = "sgd"});
    if (gives_up) {
      sync->begin_round({.steps = 3});
      (void)worker->step().run({batch_of_worker(local, 0, 77)}, 0, kLr);
    }
    sync->begin_round({.steps = 1});
    (void)worker->step().run({batch_of_worker(local, 0, 1)}, 1, kLr);
    ASSERT_EQ(link->pushed.size(), 1U);
    pushes.push_back(link->pushed[0]);
  }
  EXPECT_EQ(pushes[0].record, pushes[1].record);
  EXPECT_EQ(pushes[0].record.examples, 5);
  EXPECT_EQ(pushes[0].scores, pushes[1].scores);
  EXPECT_TRUE(at::equal(pushes[0].tensors.shards[0], pushes[1].tensors.shards[0]));
  EXPECT_TRUE(at::equal(pushes[0].tensors.statistics, pushes[1].tensors.statistics));
}

}  // namespace
}  // namespace sluice::ps::test
