// Steps with TrainStepOptions::micro_batch give the bits of a plain loop: one device, micro-batch after micro-batch,
// their gradients added in the order of the tree, parameters updated one by one.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <bit>
#include <map>

#include "core/concat.h"
#include "engine/plan_models.h"
#include "engine/reference.h"
#include "engine/train_step.h"
#include "nn/batch_norm.h"
#include "optim/clip_norm.h"
#include "pipeline/schedule/generators.h"

namespace sluice::engine::test {
namespace {

constexpr std::uint64_t kSeed = 7;
constexpr std::int64_t kMicroBatch = 3, kSteps = 3;
constexpr double kRate = 0.05, kMomentum = 0.9, kClipNorm = 0.5;

pipeline::MicroBatch batch_of(const std::string& model, std::int64_t step) {
  const std::int64_t samples = 17 - 3 * step;  // 6, 5 and 4 micro-batches, the last of which are short
  if (model == "gpt2") return make_token_batch(samples, step + 1);
  pipeline::MicroBatch batch = make_batch(samples, step + 1);
  batch.inputs[0] = batch.inputs[0].to(at::kFloat);
  return batch;
}

class PlainLoop {
 public:
  explicit PlainLoop(const std::string& model, nn::BatchNormMode mode)
      : layers_(make_plan_layers(model, at::kFloat)), mode_(mode) {
    for (const auto& layer : layers_) {
      for (nn::Parameter* parameter : layer->parameters()) {
        parameters_.push_back(parameter);
      }
    }
  }

  double step(const pipeline::MicroBatch& batch, std::int64_t number) {
    const task::TaskPtr task = task::make_classification();
    std::vector<std::vector<at::Tensor>> gradients;  // [micro-batch][parameter]
    double loss_sum = 0;
    for (std::int64_t begin = 0; begin < batch.samples(); begin += kMicroBatch) {
      const auto part = pipeline::part_of(batch, begin, std::min(begin + kMicroBatch, batch.samples()));
      nn::Tensors values = part.inputs;
      const at::AutoGradMode with_graph(true);
      for (const auto& layer : layers_) {
        values = layer->forward_all(values, {.training = true,
                                             .numerics = {.batch_norm = mode_},
                                             .seed = kSeed,
                                             .step = number,
                                             .sample_ids = part.sample_ids,
                                             .micro_batch = begin / kMicroBatch,
                                             .targets = part.targets[0].dim() == 2 ? part.targets[0] : at::Tensor()});
      }
      const at::Tensor loss = task->loss(values, part.targets);
      loss_sum += loss.item<double>();
      torch::autograd::backward({loss}, {at::full_like(loss, 1.0 / static_cast<double>(batch.samples()))});
      gradients.push_back(take_gradients());
    }
    update(gradients, static_cast<double>(task->count_targets(batch.targets)) / static_cast<double>(batch.samples()));
    take_in_statistics();
    return loss_sum / static_cast<double>(task->count_targets(batch.targets));
  }

  [[nodiscard]] storage::TensorMap tensors() const {
    storage::TensorMap all;
    for (const nn::Parameter* parameter : parameters_)
      if (parameter->tied_to.empty()) all[parameter->name] = parameter->value.detach();
    for (const auto& layer : layers_)
      for (const nn::Buffer* buffer : layer->buffers()) all[buffer->name] = buffer->value;
    return all;
  }

 private:
  std::vector<at::Tensor> take_gradients() {
    std::vector<at::Tensor> gradients;
    for (nn::Parameter* parameter : parameters_) {
      at::Tensor& gradient = parameter->value.mutable_grad();
      gradients.push_back(gradient.defined() ? gradient.clone() : at::zeros_like(parameter->value));
      gradient = at::Tensor();
    }
    return gradients;
  }

  static at::Tensor sum(const std::vector<std::vector<at::Tensor>>& gradients, std::size_t parameter, std::size_t begin,
                        std::size_t width) {
    if (width == 1) return gradients[begin][parameter];
    const at::Tensor left = sum(gradients, parameter, begin, width / 2);
    const std::size_t middle = begin + width / 2;
    return middle < gradients.size() ? left + sum(gradients, parameter, middle, width / 2) : left;
  }

  void update(const std::vector<std::vector<at::Tensor>>& gradients, double divisor) {
    const at::NoGradGuard no_grad;
    std::map<std::string, at::Tensor> sums;
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      const at::Tensor own = sum(gradients, p, 0, std::bit_ceil(gradients.size()));
      const std::string& tied = parameters_[p]->tied_to;
      sums[tied.empty() ? parameters_[p]->name : tied] = tied.empty() ? own : sums.at(tied) + own;
    }
    double squares = 0;
    for (const nn::Parameter* parameter : parameters_)
      if (parameter->tied_to.empty()) squares += optim::sum_of_squares(sums.at(parameter->name).contiguous());
    divisor /= optim::clip_factor(std::sqrt(squares) / divisor, kClipNorm);
    for (const nn::Parameter* parameter : parameters_) {
      if (!parameter->tied_to.empty()) continue;
      // In whole vectors: the kernel rounds the elements of a last, incomplete one in another way.
      const auto padded = [](const at::Tensor& tensor) {
        const at::Tensor whole = at::zeros({(tensor.numel() + 15) / 16 * 16}, tensor.options());
        whole.narrow(0, 0, tensor.numel()).copy_(tensor.flatten());
        return whole;
      };
      const at::Tensor value = padded(parameter->value.detach());
      at::Tensor& momentum = momentum_[parameter->name];
      if (!momentum.defined()) momentum = at::zeros_like(value);
      at::_fused_sgd_({value}, {padded(sums.at(parameter->name)).div(divisor)}, {momentum}, /*weight_decay=*/0,
                      kMomentum, kRate, /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false,
                      /*is_first_step=*/false);
      parameter->value.detach().copy_(value.narrow(0, 0, parameter->value.numel()).view(parameter->value.sizes()));
    }
    for (nn::Parameter* parameter : parameters_) {
      for (const nn::Parameter* owner : parameters_)
        if (owner->name == parameter->tied_to) parameter->value.detach().copy_(owner->value);
    }
  }

  void take_in_statistics() {
    for (const auto& layer : layers_) {
      for (nn::BatchNorm2d* norm : layer->batch_norms()) {
        nn::BatchStatistics whole;
        for (const auto& [number, statistics] : norm->collect()) {
          if (mode_ == nn::BatchNormMode::kMicro) norm->take_in(statistics);
          whole = pooled(whole, statistics);
        }
        if (mode_ == nn::BatchNormMode::kDeferred) norm->take_in(whole);
      }
    }
  }

  pipeline::LayerList layers_;
  nn::BatchNormMode mode_;
  std::vector<nn::Parameter*> parameters_;
  std::map<std::string, at::Tensor> momentum_;
};

struct Layout {
  std::string schedule = "1f1b";
  int devices = 1, replicas = 1;
  bool recompute = false;
};

Composition compose_layout(const std::string& model, const Layout& layout) {
  Plan plan{.replicas = layout.replicas,
            .chunks = 6,
            .schedule = layout.schedule,
            .virtual_stages = pipeline::default_virtual_stages(layout.schedule)};
  const int stages = layout.devices * plan.virtual_stages;
  plan.recompute.assign(stages, layout.recompute);
  ComposeOptions options{
      .model_name = model, .bucket_bytes = 3000, .optimizer = {.kind = "momentum", .momentum = kMomentum}};
  options.make_layers = [&] { return make_plan_layers(model, at::kFloat); };
  const int layers = static_cast<int>(options.make_layers().size());
  plan.partition.layers_per_stage.assign(stages, layers / stages);
  for (int i = 0; i < layers % stages; ++i) ++plan.partition.layers_per_stage[i];
  for (int i = 0; i < layout.devices * layout.replicas; ++i) options.devices.push_back({device::DeviceKind::kCpu, i});
  return compose(plan, options);
}

class Layouts : public testing::TestWithParam<std::string> {};

TEST_P(Layouts, HaveTheBitsOfAPlainLoop) {
  const std::vector<Layout> layouts{{},
                                    {"gpipe", 2, 2},
                                    {"1f1b", 4, 1, true},
                                    {"zb-h1", 3, 2},
                                    {"interleaved", 2, 3},
                                    {"zb-v", 3, 1},
                                    {"1f1b", 1, 8},  // more replicas than micro-batches
                                    {"dualpipe-v", 2, 1}};
  const bool has_norms = GetParam() == "residual";
  for (const auto mode : {nn::BatchNormMode::kMicro, nn::BatchNormMode::kDeferred}) {
    if (mode == nn::BatchNormMode::kDeferred && !has_norms) continue;
    PlainLoop plain(GetParam(), mode);
    std::vector<double> losses;
    std::vector<storage::TensorMap> tensors;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      losses.push_back(plain.step(batch_of(GetParam(), step), step));
      for (auto& [name, tensor] : tensors.emplace_back(plain.tensors())) tensor = tensor.clone();
    }
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(concat(layout.schedule, ", ", layout.devices, " devices, ", layout.replicas, " replicas"));
      Composition grid = compose_layout(GetParam(), layout);
      TrainStep train(
          grid, {.seed = kSeed, .numerics = {.batch_norm = mode}, .clip_norm = kClipNorm, .micro_batch = kMicroBatch});
      for (std::int64_t step = 0; step < kSteps; ++step) {
        const StepStats stats = train.run(batch_of(GetParam(), step), step, kRate);
        EXPECT_EQ(stats.loss, losses[static_cast<std::size_t>(step)]) << "step " << step;
        for (const auto& [name, tensor] : model_tensors(grid))
          EXPECT_TRUE(at::equal(tensor, tensors[static_cast<std::size_t>(step)].at(name))) << name << ", step " << step;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Layouts,
                         testing::ValuesIn(std::vector<std::string>(kPlanModels.begin(), kPlanModels.end())),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST(LayoutsEvaluate, TheSameSumsAndLogitsInOrder) {
  const pipeline::MicroBatch batch = batch_of("residual", 0);
  at::Tensor first_logits;
  std::optional<ScoreSums> first;
  for (const Layout& layout : {Layout{}, Layout{"gpipe", 2, 2}, Layout{"1f1b", 1, 4}}) {
    Composition grid = compose_layout("residual", layout);
    TrainStep step(grid, {.seed = kSeed, .micro_batch = kMicroBatch});
    at::Tensor logits;
    const EvalStats stats = step.evaluate(batch, false, &logits);
    if (!first) first = stats.scores, first_logits = logits;
    EXPECT_EQ(stats.scores.loss_sum, first->loss_sum);
    EXPECT_EQ(stats.scores.sums, first->sums);
    EXPECT_EQ(stats.scores.targets, batch.samples());
    EXPECT_TRUE(at::equal(logits, first_logits));
  }
}

}  // namespace
}  // namespace sluice::engine::test
