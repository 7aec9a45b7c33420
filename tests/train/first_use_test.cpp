// What the first use of a layer's weights in a step takes more than later ones, on a clock that only the layers move.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <mutex>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/clock.h"
#include "core/concat.h"
#include "measure/layer_timer.h"
#include "models/family.h"
#include "nn/transformed_weights.h"

namespace sluice::train {
namespace {

using measure::FirstUse;
using nn::TransformedWeights;

constexpr std::int64_t kClasses = 4;
constexpr double kRounding = 1e-9;

// Seconds of the clock.
struct Takes {
  int forward = 0, backward = 0;
  int transform_forward = 0, transform_backward = 0;  // 0: nothing is transformed
};
constexpr std::array<Takes, 3> kTakes{{{2, 3, 5, 4}, {1, 7, 0, 0}, {6, 2, 0, 9}}};

Nanoseconds played = 0;  // the clock

void pass_by(int seconds) { played += Nanoseconds{seconds} * 1'000'000'000; }

void use_weight(TransformedWeights& kept, const at::Tensor& weight, TransformedWeights::Use use, int transform_s) {
  if (transform_s == 0) return;
  (void)kept.get(weight, use, /*tile=*/2, [&] {
    pass_by(transform_s);
    return weight.clone();
  });
}

// A product with a weight that is transformed for both ways.
class PlayedProduct : public torch::autograd::Function<PlayedProduct> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const Takes* takes, TransformedWeights* kept) {
    pass_by(takes->forward);
    use_weight(*kept, weight, TransformedWeights::Use::kForward, takes->transform_forward);
    ctx->save_for_backward({x, weight});
    ctx->saved_data["takes"] = reinterpret_cast<std::int64_t>(takes);
    ctx->saved_data["kept"] = reinterpret_cast<std::int64_t>(kept);
    return x * weight;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto* takes = reinterpret_cast<const Takes*>(ctx->saved_data["takes"].toInt());
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    pass_by(takes->backward);
    use_weight(*reinterpret_cast<TransformedWeights*>(ctx->saved_data["kept"].toInt()), saved[1],
               TransformedWeights::Use::kInputGradient, takes->transform_backward);
    return {grads[0] * saved[1], (grads[0] * saved[0]).sum(0), {}, {}};
  }
};

class PlayedLayer final : public nn::Layer {
 public:
  PlayedLayer(const std::string& name, const Takes& takes)
      : Layer(name), weight_{name + ".weight", at::ones({kClasses}).requires_grad_()}, takes_(&takes) {}
  at::Tensor forward(const at::Tensor& input, const nn::ForwardContext& context) override {
    const at::Tensor rows = input.flatten(1).narrow(1, 0, kClasses);
    return PlayedProduct::apply(rows, weight_.value, takes_, context.transformed_weights);
  }
  std::vector<nn::Parameter*> parameters() override { return {&weight_}; }

 private:
  nn::Parameter weight_;
  const Takes* takes_;
};

models::Layers make_played(const models::ModelOptions&) {
  models::Layers layers;
  for (const Takes& takes : kTakes) layers.push_back(std::make_unique<PlayedLayer>(concat("l", layers.size()), takes));
  return layers;
}

measure::Workload played_workload() {
  static std::once_flag once;
  std::call_once(once, [] { models::add_family({.name = "played", .make = make_played}); });
  measure::Workload workload{.layers = static_cast<int>(kTakes.size())};
  workload.model.name = "played";
  workload.model.classes = kClasses;
  workload.model.image_size = 8;
  return workload;
}

TEST(FirstUse, IsWhatTheFirstTakesMoreThanLaterOnes) {
  constexpr std::int64_t kSamples = 2;
  const measure::Workload workload = played_workload();
  measure::LayerBench bench(workload);
  const auto timer = measure::make_clock_timer(bench, [] { return played; });
  timer->warm_up(kSamples);
  timer->pass(kSamples);
  const std::vector<profiler::LayerTimes> times = timer->times(kSamples);
  const std::vector<FirstUse> first = timer->first_use(kSamples);
  ASSERT_EQ(first.size(), kTakes.size());
  for (std::size_t i = 0; i < kTakes.size(); ++i) {
    EXPECT_NEAR(times[i].forward_s, kTakes[i].forward, kRounding) << i << ", with weights that are kept";
    EXPECT_NEAR(times[i].backward_s, kTakes[i].backward, kRounding) << i;
    EXPECT_NEAR(first[i].forward_s, kTakes[i].transform_forward, kRounding) << i;
    EXPECT_NEAR(first[i].backward_s, kTakes[i].transform_backward, kRounding) << i;
  }
}

}  // namespace
}  // namespace sluice::train
