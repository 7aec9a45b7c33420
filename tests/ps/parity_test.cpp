// Workers of a parameter server compared with one device that has all their samples, in float64.
#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "ps/workers.h"

namespace sluice::ps::test {
namespace {

using engine::test::kAdam;
using engine::test::kLr;
using engine::test::kSgd;
using engine::test::Shape;

constexpr double kTolerance = 1e-10;
constexpr int kRounds = 3;

struct Case {
  const char* name;
  std::vector<Shape> workers;
  std::vector<std::int64_t> samples;  // [worker]
  int shards = 1;
  optim::OptimizerOptions optimizer = kSgd;
  double clip_norm = 0;
};

const Shape kOne{"vit", 1, 1, "1f1b", 1}, kGrid{"vit", 2, 2, "1f1b", 3}, kZeroBubble{"vit", 3, 1, "zb-h1", 4};
const Shape kTied{"gpt2", 3, 2, "zb-h1", 3}, kTiedOne{"gpt2", 1, 1, "1f1b", 2};
const optim::OptimizerOptions kMomentum{.kind = "momentum", .momentum = 0.9, .weight_decay = 0.01};

std::vector<Case> cases() {
  return {
      {"one", {kGrid}, {13}},
      {"uneven", {kOne, kGrid, kZeroBubble}, {1, 7, 64}, 2, kMomentum},
      {"eight", std::vector<Shape>(8, kOne), {1, 2, 3, 4, 5, 6, 7, 8}, 3, kAdam},
      {"clipped", {kGrid, kOne}, {9, 4}, 3, kAdam, 0.1},
      {"tied", {kTied, kTiedOne, kTied}, {5, 7, 3}, 3, kAdam, 0.2},
      {"nothing", {kOne, kOne}, {6, 0}, 1, kMomentum},
  };
}

class ParityTest : public engine::test::SyncTest, public testing::WithParamInterface<Case> {
 protected:
  static ServerOptions server_options(const Case& of, std::string_view policy) {
    return {.policy = preset_policy(policy, static_cast<int>(of.workers.size())),
            .optimizer = of.optimizer,
            .lr = [](const ServerProgress&) { return kLr; },
            .clip_norm = of.clip_norm};
  }
  static std::unique_ptr<Workers> make_workers(const Case& of, std::string_view policy) {
    return std::make_unique<Workers>(
        static_cast<int>(of.workers.size()), server_options(of, policy), of.shards,
        [&of](int w, engine::SyncFactory factory) { return make_engine(of.workers[w], factory, {.kind = "sgd"}); });
  }
  static pipeline::MicroBatch whole_batch(const Case& of, int round) {
    const std::int64_t all = std::accumulate(of.samples.begin(), of.samples.end(), std::int64_t{0});
    return of.workers[0].model == std::string("gpt2") ? engine::test::make_token_batch(all, round)
                                                      : engine::test::make_batch(all, round);
  }
};

TEST_P(ParityTest, BulkSynchronousWorkersLearnWhatOneDeviceLearnsFromAllTheirSamples) {
  const Case& of = GetParam();
  const auto workers = make_workers(of, "bsp");
  const auto alone = make_engine({of.workers[0].model, 1, 1, "1f1b", 1}, engine::make_sync, of.optimizer,
                                 {.seed = 7, .clip_norm = of.clip_norm});
  for (int round = 0; round < kRounds; ++round) {
    const pipeline::MicroBatch batch = whole_batch(of, round);
    const StepStats stats = alone->step().run({batch}, round, kLr);
    double loss_sum = 0;
    std::int64_t targets = 0, begin = 0;
    for (std::size_t w = 0; w < of.workers.size(); ++w) {
      const auto share = part_of(batch, begin, begin + of.samples[w]);
      begin += of.samples[w];
      const StepStats own = workers->engines[w]->step().run({share}, round, kLr);
      loss_sum += own.loss * static_cast<double>(std::max<std::int64_t>(own.targets, 1));
      targets += own.targets;
      EXPECT_EQ(workers->deliver(static_cast<int>(w)).examples, of.samples[w]);
    }
    const auto done = workers->server->advance(0);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_NEAR(loss_sum / static_cast<double>(targets), stats.loss, kTolerance);
    if (of.clip_norm > 0) {
      EXPECT_NEAR(done[0].gradient_norm, *stats.gradient_norm, kTolerance);
      EXPECT_GT(*stats.gradient_norm, of.clip_norm) << "it is clipped";
    }
    const auto ours = workers->weights();
    const engine::test::WorstError worst = engine::test::worst_error(ours, weights_of(*alone, ours));
    EXPECT_LE(worst.error, kTolerance) << worst.name << " after " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ParityTest, testing::ValuesIn(cases()),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

class WorkerTest : public ParityTest {};

TEST_F(WorkerTest, AsynchronousWithOneWorkerIsPlainTraining) {
  for (const auto& optimizer : {kSgd, kMomentum, kAdam}) {
    const Case of{"", {kGrid}, {13}, 2, optimizer};
    const auto workers = make_workers(of, "asp");
    const auto alone = make_engine(kGrid, engine::make_sync, optimizer);
    for (int round = 0; round < kRounds; ++round) {
      const pipeline::MicroBatch batch = whole_batch(of, round);
      EXPECT_NEAR(workers->engines[0]->step().run({batch}, round, kLr).loss,
                  alone->step().run({batch}, round, kLr).loss, kTolerance);
      (void)workers->deliver(0);
      ASSERT_EQ(workers->server->advance(0).size(), 1U);
    }
    const auto ours = workers->weights();
    EXPECT_LE(engine::test::worst_error(ours, weights_of(*alone, ours)).error, kTolerance) << optimizer.kind;
  }
}

// A gradient of two-updates-old weights changes the current ones.
TEST_F(WorkerTest, AnAsynchronousPushIsOfTheWeightsThatItBeganWith) {
  const Case of{"", {kOne, kOne}, {4, 5}};
  const auto workers = make_workers(of, "asp");
  const auto from_start = make_engine(kOne, engine::make_sync, kSgd), fast = make_engine(kOne, engine::make_sync, kSgd);
  const auto slow_batch = engine::test::make_batch(5, 50);
  (void)workers->engines[1]->step().run({slow_batch}, 0, kLr);
  for (int round = 0; round < 2; ++round) {
    const auto batch = engine::test::make_batch(4, round);
    (void)workers->engines[0]->step().run({batch}, round, kLr);
    (void)workers->deliver(0);
    (void)workers->server->advance(0);
    (void)fast->step().run({batch}, round, kLr);
  }
  EXPECT_EQ(workers->deliver(1).base_version, 0);
  ASSERT_EQ(workers->server->advance(0).at(0).update.version, 3);
  const auto ours = workers->weights();
  storage::TensorMap expected = weights_of(*fast, ours);
  const storage::TensorMap start = weights_of(*from_start, ours);
  (void)from_start->step().run({slow_batch}, 0, kLr);
  const storage::TensorMap moved = weights_of(*from_start, ours);
  for (auto& [name, values] : expected) values = values + moved.at(name) - start.at(name);
  EXPECT_LE(engine::test::worst_error(ours, expected).error, kTolerance);
}

// Batch-norm normalises each worker's micro-batches, as replicas do; running statistics go by examples.
TEST_F(WorkerTest, RunningStatisticsAreTheMeanByExamples) {
  for (const int local : {1, 2}) {  // replicas in each worker
    const Shape one{"resnet8", 2, local, "1f1b", 2};
    const Case of{"", {one, one}, {7, 6}, 2, kMomentum};
    const auto workers = make_workers(of, "bsp");
    const auto replicas = make_engine({"resnet8", 2, 2 * local, "1f1b", 2}, engine::make_sync, kMomentum);
    for (int round = 0; round < kRounds; ++round) {
      const auto batch = whole_batch(of, round);
      (void)replicas->step().run({batch}, round, kLr);
      for (int w = 0; w < 2; ++w) {
        (void)workers->engines[w]->step().run({part_of(batch, w * 7, w == 0 ? 7 : 13)}, round, kLr);
        (void)workers->deliver(w);
      }
      ASSERT_EQ(workers->server->advance(0).size(), 1U);
    }
    const auto ours = workers->weights();
    ASSERT_FALSE(workers->server->layout().statistics.empty());
    const auto worst = engine::test::worst_error(ours, weights_of(*replicas, ours));
    EXPECT_LE(worst.error, kTolerance) << worst.name;
  }
}

// For every time limit, count and gradient are those of the slices that ran.
TEST_F(WorkerTest, AnytimeWorkersPushTheSlicesThatTheyHadTimeFor) {
  constexpr int kSlices = 5;
  for (int stages = 1; stages <= 4; ++stages) {
    for (const char* schedule : {"gpipe", "1f1b"}) {
      for (int cut = 1; cut <= kSlices; ++cut) {
        const Shape shape{"vit", stages, 1, schedule, kSlices};
        const Case of{"", {shape}, {17}};
        const auto workers = make_workers(of, "asp");
        workers->admits = [cut](ReplicaId, MicroBatchId slice) { return index(slice) < cut; };
        const auto batch = whole_batch(of, 0);
        (void)workers->engines[0]->step().run({batch}, 0, kLr);
        const auto sizes = pipeline::split_sizes(17, kSlices);
        const std::int64_t ran = std::accumulate(sizes.begin(), sizes.begin() + cut, std::int64_t{0});
        EXPECT_EQ(workers->deliver(0).examples, ran);
        (void)workers->server->advance(0);
        const auto alone = make_engine(kOne, engine::make_sync, kSgd);
        (void)alone->step().run({part_of(batch, 0, ran)}, 0, kLr);
        const auto ours = workers->weights();
        const auto worst = engine::test::worst_error(ours, weights_of(*alone, ours));
        EXPECT_LE(worst.error, kTolerance) << schedule << stages << " cut after " << cut << ": " << worst.name;
      }
    }
  }
}

TEST_F(WorkerTest, ATrialLeavesNothingAtTheServer) {
  const Case of{"", {kGrid}, {13}};
  const auto workers = make_workers(of, "asp");
  (void)workers->engines[0]->step().compute_gradients({whole_batch(of, 0)}, 0, 3, {.is_trial = true});
  EXPECT_FALSE(workers->links[0]->take());
  const auto untouched = make_workers(of, "asp");
  for (const auto& one : {&*workers, &*untouched}) {
    (void)one->engines[0]->step().run({whole_batch(of, 1)}, 0, kLr);
    (void)one->deliver(0);
    (void)one->server->advance(0);
  }
  expect_same_bits(workers->weights(), untouched->weights());
}

TEST_F(WorkerTest, ALossThatIsNotFiniteIsNotPushed) {
  const Case of{"", {kOne}, {4}};
  const auto workers = make_workers(of, "asp");
  auto batch = whole_batch(of, 0);
  batch.inputs[0][2].fill_(NAN);
  EXPECT_THROW((void)workers->engines[0]->step().run({batch}, 0, kLr), Error);
  EXPECT_FALSE(workers->links[0]->take());
}

TEST_F(WorkerTest, AnotherModelIsRefusedByName) {
  const Case of{"", {kOne}, {4}};
  const auto workers = make_workers(of, "asp");
  const auto join = [&](const Shape& shape, int frozen) {
    return make_engine(
        shape,
        [&](engine::SyncRequest request) {
          return std::make_shared<WorkerSync>(std::move(request.stages), 400, workers->links[0]);
        },
        kSgd, {.seed = 7}, frozen);
  };
  EXPECT_THROW(join(kTiedOne, 0), ConfigError);
  EXPECT_THROW(join({"resnet8", 1, 1, "1f1b", 1}, 0), ConfigError);
  EXPECT_THROW(join(kOne, 1), ConfigError) << "it trains fewer layers";
  EXPECT_NO_THROW(join(kGrid, 0)) << "only its cut is another";
}

}  // namespace
}  // namespace sluice::ps::test
