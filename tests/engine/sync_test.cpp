// TrainStep obeys what a sync says: an optimizer that runs elsewhere, weights that it replaces, steps and micro-batches
// that it drops. In float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "engine/engine.h"
#include "engine/reference.h"
#include "engine/sync_fixture.h"
#include "engine/test_syncs.h"

namespace sluice::engine::test {
namespace {

TEST_F(SyncTest, AnOptimizerElsewhereTrainsAsOneHere) {
  for (const Shape& shape : {Shape{"vit"}, Shape{"gpt2", 3, 2, "zb-h1", 3}}) {
    const auto ours = make_engine(shape, making<KeepsTheOptimizer>(), kAdam);
    const auto here = make_engine(shape, make_sync, kSgd);
    for (int number = 0; number < 4; ++number)
      EXPECT_NEAR(train(*ours, shape, number).loss, train(*here, shape, number).loss, kTolerance) << shape.model;
    const WorstError worst = worst_error(ours->capture().model, here->capture().model);
    EXPECT_LE(worst.error, kTolerance) << worst.name;
    EXPECT_EQ(ours->capture().optimizer_steps, 0) << "its own optimizer has run";
  }
}

TEST_F(SyncTest, AnOptimizerElsewhereKnowsWhatItsGradientsAreTheMeanOf) {
  for (const Shape& shape : {Shape{"vit", 2, 2, "1f1b", 3}, Shape{"gpt2", 3, 2, "zb-h1", 3}}) {
    const auto ours = make_engine(shape, making<AdmitsFewAndKeepsTheOptimizer>(), kAdam);
    const auto here = make_engine(shape, making<AdmitsFew>(), kSgd);
    for (int number = 0; number < 3; ++number)
      EXPECT_NEAR(train(*ours, shape, number).loss, train(*here, shape, number).loss, kTolerance) << shape.model;
    const WorstError worst = worst_error(ours->capture().model, here->capture().model);
    EXPECT_LE(worst.error, kTolerance) << worst.name;
  }
}

TEST_F(SyncTest, GradientsAreDividedByWhatTheSyncSays) {
  const Shape shape;
  const auto halved = make_engine(shape, making<HalvesGradients>(), kSgd), plain = make_engine(shape, make_sync, kSgd);
  for (int number = 0; number < 2; ++number) {
    halved->step().run({batch_of(shape, number)}, number, 2 * kLr);
    plain->step().run({batch_of(shape, number)}, number, kLr);
  }
  const WorstError worst = worst_error(halved->capture().model, plain->capture().model);
  EXPECT_LE(worst.error, kTolerance) << worst.name;
}

TEST_F(SyncTest, WeightsThatAreReplacedAfterAnUpdateReachEveryCopy) {
  for (const Shape& shape : {Shape{"vit"}, Shape{"gpt2", 3, 1, "1f1b", 2}}) {
    const auto ours = make_engine(shape, making<ReplacesWeightsOnceTheThirdUpdateIsDone>(), kAdam);
    const auto untrained = make_engine(shape, make_sync, kAdam);
    for (int number = 0; number < 3; ++number) EXPECT_FALSE(train(*ours, shape, number).skipped);
    expect_same_bits(ours->capture().model, untrained->capture().model);
    EXPECT_EQ(ours->capture().optimizer_steps, 3);
    expect_same_next_loss(*ours, *untrained, shape);
  }
}

class LooksOn final : public LocalSync {
 public:
  LooksOn(SyncRequest request, std::vector<comm::StepStart>& seen) : LocalSync(std::move(request)), seen_(seen) {}
  bool before_step() override {
    seen_.push_back(start());
    return false;
  }

 private:
  std::vector<comm::StepStart>& seen_;
};

TEST_F(SyncTest, ASyncKnowsWhichStepBeginsAndWhetherItIsATrial) {
  const Shape shape;
  std::vector<comm::StepStart> seen;
  const auto engine = make_engine(
      shape, [&seen](SyncRequest request) { return std::make_shared<LooksOn>(std::move(request), seen); }, kSgd);
  (void)engine->step().compute_gradients({batch_of(shape, 0)}, 0, 2, {.is_trial = true});
  engine->step().run({batch_of(shape, 0)}, 17, 0.25);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_TRUE(seen[0].is_trial);
  EXPECT_EQ(seen[0].lr, 0);
  EXPECT_FALSE(seen[1].is_trial);
  EXPECT_EQ(seen[1].step, 17);
  EXPECT_EQ(seen[1].lr, 0.25);
}

TEST_F(SyncTest, WeightsThatAreReplacedBeforeAStepAreUsedInIt) {
  for (const Shape& shape : {Shape{"vit"}, Shape{"gpt2", 3, 1, "1f1b", 2}}) {
    const auto ours = make_engine(shape, making<ReplacesWeightsBeforeTheThirdStep>(), kAdam);
    const auto plain = make_engine(shape, make_sync, kAdam);
    State state = plain->capture();
    const storage::TensorMap initial = state.model;
    for (int number = 0; number < 4; ++number) {
      if (number == 2) {
        state = plain->capture();
        state.model = initial;
        plain->load(state, "here");
      }
      EXPECT_EQ(train(*ours, shape, number).loss, train(*plain, shape, number).loss) << shape.model << number;
    }
    expect_same_state(*ours, *plain);
  }
}

TEST_F(SyncTest, WeightsThatAreReplacedAfterAStepReachEveryCopy) {
  for (const Shape& shape : {Shape{"vit"}, Shape{"gpt2", 3, 1, "1f1b", 2}}) {
    const auto ours = make_engine(shape, making<ReplacesWeightsAfterTheThirdStep>(), kAdam);
    const auto untrained = make_engine(shape, make_sync, kAdam);
    for (int number = 0; number < 3; ++number) EXPECT_EQ(train(*ours, shape, number).skipped, number == 2);
    expect_same_bits(ours->capture().model, untrained->capture().model);
    EXPECT_EQ(ours->capture().optimizer_steps, 2);
    expect_same_next_loss(*ours, *untrained, shape);
  }
}

TEST_F(SyncTest, AStepThatIsSkippedLeavesNoTraceWhateverItsNumbers) {
  for (const nn::BatchNormMode mode :
       {nn::BatchNormMode::kMicro, nn::BatchNormMode::kDeferred, nn::BatchNormMode::kSync}) {
    for (const Shape& shape : {Shape{"vit"}, Shape{"resnet8", 2, 2, "1f1b", 2}}) {
      SCOPED_TRACE(concat(shape.model, ", batch-norm mode ", static_cast<int>(mode)));
      const TrainStepOptions clipped{.seed = 7, .numerics = {.batch_norm = mode}, .clip_norm = 0.5};
      const auto ours = make_engine(shape, making<SkipsOddSteps>(), kAdam, clipped);
      const auto plain = make_engine(shape, make_sync, kAdam, clipped);
      for (int number = 0; number < 6; ++number) {
        pipeline::MicroBatch batch = batch_of(shape, number);
        if (number == 3) batch.inputs[0].fill_(std::numeric_limits<double>::quiet_NaN());
        const StepStats stats = ours->step().run({batch}, number, kLr);
        EXPECT_EQ(stats.skipped, number % 2 == 1);
        if (number % 2 == 1) continue;
        EXPECT_EQ(stats.loss, train(*plain, shape, number).loss);
      }
      expect_same_state(*ours, *plain);
    }
  }
}

// What the sync has admitted counts, and nothing else.
TEST_F(SyncTest, TheGradientIsThatOfTheMicroBatchesThatHaveRun) {
  for (const Shape& shape : {Shape{"resnet8", 2, 2, "1f1b", 3}, Shape{"vit", 3, 2, "zb-h1", 3},
                             Shape{"gpt2", 2, 2, "gpipe", 3}, Shape{"vit", 1, 3, "1f1b", 2}}) {
    SCOPED_TRACE(concat(shape.model, " ", shape.schedule));
    const auto engine = make_engine(shape, making<AdmitsFew>(), kSgd);
    ReferenceModel reference(small_model(shape.model));
    reference.load(engine->capture().model);
    const pipeline::MicroBatch batch = batch_of(shape, 5);
    std::vector<pipeline::MicroBatch> pieces;
    std::int64_t samples = 0, targets = 0, replica = 0;
    for (const pipeline::MicroBatch& share : pipeline::split(batch, shape.replicas)) {
      int number = 0;
      for (const pipeline::MicroBatch& piece : pipeline::split(share, shape.chunks)) {
        if (!AdmitsFew::takes(ReplicaId{static_cast<int>(replica)}, MicroBatchId{number++})) continue;
        pieces.push_back(piece);
        samples += piece.samples();
        targets += piece.targets[0].ge(0).sum().item<std::int64_t>();
      }
      ++replica;
    }
    const ReferenceStep expected = reference.step(pieces, {.training = true, .seed = 7, .step = 5});
    const auto found = engine->step().compute_gradients({batch}, 5, shape.chunks, {.counts_scores = true});
    EXPECT_EQ(found.stats.samples, samples);
    EXPECT_EQ(found.stats.targets, targets);
    EXPECT_EQ(found.stats.scores->targets, targets);
    EXPECT_NEAR(found.stats.loss, expected.loss, kTolerance * expected.loss);
    storage::TensorMap gradients = gradient_tensors(engine->composition());
    for (auto& [name, gradient] : gradients) gradient = gradient / found.divisor;
    const WorstError worst = worst_error(gradients, expected.gradients);
    EXPECT_LE(worst.error, 1e-10) << worst.name;
  }
}

// Each replica's running statistics weigh as much as the samples that it has run.
TEST_F(SyncTest, RunningStatisticsAreThoseOfTheMicroBatchesThatHaveRun) {
  const Shape shape{"resnet8", 2, 2, "1f1b", 3};
  const auto engine = make_engine(shape, making<AdmitsFew>(), kSgd);
  const storage::TensorMap before = engine->capture().model;
  const pipeline::MicroBatch batch = batch_of(shape, 5);
  train(*engine, shape, 5);
  storage::TensorMap expected;
  std::int64_t samples = 0;
  int replica = 0;
  for (const pipeline::MicroBatch& share : pipeline::split(batch, shape.replicas)) {
    ReferenceModel reference(small_model(shape.model));
    reference.load(before);
    std::vector<pipeline::MicroBatch> pieces = pipeline::split(share, shape.chunks);
    if (replica++ > 0) pieces.resize(1);
    (void)reference.step(pieces, {.training = true, .seed = 7, .step = 5});
    std::int64_t own = 0;
    for (const auto& piece : pieces) own += piece.samples();
    for (const auto& [name, tensor] : reference.tensors()) {
      if (name.find("running_") == std::string::npos) continue;
      const at::Tensor weighted = tensor.detach() * static_cast<double>(own);
      expected[name] = expected.contains(name) ? expected[name] + weighted : weighted;
    }
    samples += own;
  }
  ASSERT_FALSE(expected.empty());
  storage::TensorMap found;
  for (auto& [name, tensor] : expected) {
    tensor = tensor / static_cast<double>(samples);
    found[name] = engine->capture().model.at(name);
  }
  const WorstError worst = worst_error(found, expected);
  EXPECT_LE(worst.error, 1e-10) << worst.name;
}

TEST_F(SyncTest, AStepOfNoMicroBatchChangesNothing) {
  const Shape shape{"resnet8", 2, 2, "1f1b", 2};
  const auto ours = make_engine(shape, making<AdmitsNone>(), kAdam), untrained = make_engine(shape, make_sync, kAdam);
  const StepStats stats = train(*ours, shape, 0);
  EXPECT_EQ(stats.samples, 0);
  EXPECT_TRUE(stats.skipped);
  expect_same_state(*ours, *untrained);
}

}  // namespace
}  // namespace sluice::engine::test
