// A model's state has global names, so it moves between any numbers of stages and replicas.
#include "engine/state.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "core/concat.h"
#include "core/error.h"
#include "engine/reference.h"
#include "engine/train_step.h"

namespace sluice::engine {
namespace {

using testing::HasSubstr;

const optim::OptimizerOptions kAdam{.kind = "adamw", .weight_decay = 0.01};

storage::TensorMap copy_of(const storage::TensorMap& tensors) {
  storage::TensorMap copy;
  for (const auto& [name, tensor] : tensors) copy[name] = tensor.clone();
  return copy;
}

void expect_equal(const storage::TensorMap& ours, const storage::TensorMap& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, tensor] : theirs) EXPECT_TRUE(at::equal(ours.at(name), tensor)) << name;
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "nothing was refused";
}

class State : public testing::Test {
 protected:
  Composition trained() {
    Composition grid = test::make_grid(model_, "1f1b", 2, 2, kAdam);
    TrainStep step(grid, {});
    for (int number = 0; number < 2; ++number) step.run(test::make_batch(13, number), number, 0.01);
    return grid;
  }
  models::ModelOptions model_ = test::small_model("resnet8");
};

TEST_F(State, MovesToAnotherNumberOfStagesAndReplicas) {
  const Composition source = trained();
  const storage::TensorMap model = copy_of(model_tensors(source)), optimizer = copy_of(optimizer_tensors(source));
  for (const auto& [stages, replicas] : {std::pair{1, 1}, std::pair{3, 1}, std::pair{2, 3}}) {
    SCOPED_TRACE(concat(stages, " stages, ", replicas, " replicas"));
    Composition target = test::make_grid(model_, "gpipe", stages, replicas, kAdam);
    load_model(target, model, "here");
    load_optimizer(target, optimizer, source.optimizers.front()->steps(), "here");
    expect_equal(model_tensors(target), model);
    expect_equal(optimizer_tensors(target), optimizer);
    for (const auto& of_stage : target.optimizers) EXPECT_EQ(of_stage->steps(), 2);
    for (int r = 1; r < replicas; ++r) {
      for (int s = 0; s < stages; ++s) {
        const auto& own = target.executor->stage(ReplicaId{r}, StageId{s}).parameters();
        const auto& first = target.executor->stage(ReplicaId{0}, StageId{s}).parameters();
        EXPECT_TRUE(at::equal(own.values(), first.values()));
        EXPECT_TRUE(at::equal(own.running_statistics(), first.running_statistics()))
            << "replica " << r << ", stage " << s;
      }
    }
  }
}

TEST_F(State, TheNextStepAfterMovingIsTheSame) {
  Composition source = trained();
  Composition target = test::make_grid(model_, "1f1b", 3, 2, kAdam);
  load_model(target, copy_of(model_tensors(source)), "here");
  load_optimizer(target, copy_of(optimizer_tensors(source)), 2, "here");
  for (Composition* grid : {&source, &target}) TrainStep(*grid, {}).run(test::make_batch(13, 9), 2, 0.01);
  EXPECT_LE(test::worst_error(model_tensors(target), model_tensors(source)).error, 1e-12);
}

TEST_F(State, UpdatesOfAParameterAreNoMoreThanTheSteps) {
  Composition grid = test::make_grid(model_, "1f1b", 2, 1, kAdam);
  const storage::TensorMap optimizer = copy_of(optimizer_tensors(grid));
  load_optimizer(grid, optimizer, 9, "here", {{"fc.bias", 4}});
  EXPECT_EQ(update_counts(grid).at("fc.bias"), 4);
  EXPECT_EQ(update_counts(grid).at("fc.weight"), 9) << "an earlier version did not count them";
  for (const std::int64_t count : {-1, 10})
    EXPECT_THAT(refusal([&] {
                  load_optimizer(grid, optimizer, 9, "state.json", {{"fc.bias", count}});
                }),
                HasSubstr(concat("state.json: parameter 'fc.bias' has had ", count, " updates in 9 steps")));
}

TEST_F(State, HasTheTensorsOfTheModelAndTwoOptimizerTensorsForEachParameter) {
  const Composition grid = trained();
  const storage::TensorMap model = model_tensors(grid), gradients = gradient_tensors(grid),
                           optimizer = optimizer_tensors(grid);
  EXPECT_TRUE(model.contains("bn1.running_mean"));
  EXPECT_FALSE(gradients.contains("bn1.running_mean"));
  EXPECT_EQ(optimizer.size(), 2 * gradients.size());
  EXPECT_EQ(optimizer.at("exp_avg/fc.weight").sizes(), model.at("fc.weight").sizes());
}

TEST_F(State, RefusesWhatIsNotTheModelsByName) {
  Composition grid = test::make_grid(model_, "1f1b", 2, 1, kAdam);
  const storage::TensorMap model = copy_of(model_tensors(grid));
  const auto refused = [&](const std::function<void(storage::TensorMap&)>& change) {
    storage::TensorMap changed = model;
    change(changed);
    return refusal([&] { load_model(grid, changed, "file.safetensors"); });
  };
  EXPECT_THAT(refused([](storage::TensorMap& t) { t.erase("layer2.0.conv1.weight"); }),
              AllOf(HasSubstr("file.safetensors"), HasSubstr("has no tensor 'layer2.0.conv1.weight'")));
  EXPECT_THAT(refused([](storage::TensorMap& t) { t["layer9.weight"] = at::zeros({1}); }),
              AllOf(HasSubstr("file.safetensors"), HasSubstr("'layer9.weight' does not belong to the model")));
  EXPECT_THAT(refused([](storage::TensorMap& t) { t["fc.bias"] = at::zeros({7}); }),
              AllOf(HasSubstr("'fc.bias' is [7]"), HasSubstr("needs [5]")));
  EXPECT_THAT(refused([](storage::TensorMap& t) { t["bn1.running_var"] = at::zeros({3}); }),
              HasSubstr("'bn1.running_var'"));
}

TEST_F(State, RefusesWhatIsNotFiniteByNameAndNumber) {
  Composition grid = test::make_grid(model_, "1f1b", 2, 1, kAdam);
  storage::TensorMap model = copy_of(model_tensors(grid)), optimizer = copy_of(optimizer_tensors(grid));
  const storage::TensorMap before = copy_of(model);
  const auto refused = [&] { return refusal([&] { load_model(grid, model, "file.safetensors"); }); };
  model.at("conv1.weight")[0][0][0][0].fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(refused(), HasSubstr("file.safetensors: conv1.weight has 1 NaN;"));
  model.at("conv1.weight")[1][0][0].fill_(-std::numeric_limits<double>::infinity());
  EXPECT_THAT(refused(), HasSubstr("conv1.weight has 1 NaN and 3 infinite values;"));
  model.at("bn1.running_var")[0].fill_(std::numeric_limits<double>::infinity());
  EXPECT_THAT(refused(), HasSubstr("bn1.running_var has 1 infinite value (and 1 more tensor holds"));
  expect_equal(model_tensors(grid), before);  // nothing was taken over
  optimizer.at("exp_avg/fc.bias")[1].fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(refusal([&] { load_optimizer(grid, optimizer, 1, "o.safetensors"); }),
              HasSubstr("o.safetensors: exp_avg/fc.bias has 1 NaN;"));
}

TEST_F(State, RefusesAnotherOptimizersState) {
  Composition grid = test::make_grid(model_, "1f1b", 2, 1, kAdam);
  storage::TensorMap optimizer = copy_of(optimizer_tensors(grid));
  const auto refused = [&] { return refusal([&] { load_optimizer(grid, optimizer, 1, "o.safetensors"); }); };
  optimizer["momentum_buffer/fc.bias"] = at::zeros({5});
  EXPECT_THAT(refused(), HasSubstr("'momentum_buffer/fc.bias' does not belong"));
  optimizer.erase("momentum_buffer/fc.bias");
  optimizer.erase("exp_avg/fc.bias");
  EXPECT_THAT(refused(), HasSubstr("has no tensor 'exp_avg/fc.bias'"));
}

TEST_F(State, ASnapshotPutsBackTheBuffersOfAllReplicas) {
  Composition grid = trained();
  const storage::TensorMap before = copy_of(model_tensors(grid));
  const BufferSnapshot snapshot(grid);
  (void)TrainStep(grid, {}).compute_gradients(test::make_batch(13), 5, 2);
  EXPECT_FALSE(at::equal(model_tensors(grid).at("bn1.running_mean"), before.at("bn1.running_mean")));
  snapshot.restore();
  expect_equal(model_tensors(grid), before);
}

}  // namespace
}  // namespace sluice::engine
