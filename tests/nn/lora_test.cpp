#include "nn/lora.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "nn/compare.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/weight_queue.h"

namespace sluice::nn {
namespace {

constexpr std::int64_t kRank = 3;
constexpr double kScale = 0.7;

// Linear layers q, k and v over one input, of which q and v have adapters. Only these are trained.
class Adapted {
 public:
  Adapted(std::int64_t in, std::int64_t out, at::ScalarType type, double dropout = 0, bool in_bf16 = false)
      : registry_({.seed = 1, .dtype = type, .in_bf16 = in_bf16, .lora = options(dropout)}),
        q_(registry_, "q", in, out, LinearInit::torch_default(in)),
        k_(registry_, "k", in, out / 2, LinearInit::torch_default(in)),
        v_(registry_, "v", in, out / 2, LinearInit::torch_default(in)) {
    const at::NoGradGuard no_grad;
    for (Parameter* p : registry_.parameters()) {
      const bool is_b = p->name.ends_with(".lora_B.weight");
      p->value.requires_grad_(is_b || p->name.ends_with(".lora_A.weight"));
      if (is_b) p->value.normal_(0, 0.3);
      values_[p->name] = p->value;
    }
  }

  [[nodiscard]] at::Tensor packed(const at::Tensor& x, const ForwardContext& context) const {
    const std::array layers{&q_, &k_, &v_};
    return linear_packed(x, layers, context);
  }
  [[nodiscard]] const Linear& q() const { return q_; }
  [[nodiscard]] const at::Tensor& value(const std::string& name) const { return values_.at(name); }

  // kept: the input of the adapters.
  [[nodiscard]] static at::Tensor formula(const std::map<std::string, at::Tensor>& values, const at::Tensor& x,
                                          const at::Tensor& kept) {
    std::vector<at::Tensor> parts;
    for (const std::string name : {"q", "k", "v"}) {
      at::Tensor y = at::linear(x, values.at(name + ".weight"), values.at(name + ".bias"));
      if (values.contains(name + ".lora_A.weight")) {
        y = y + kScale * at::linear(at::linear(kept, values.at(name + ".lora_A.weight")),
                                    values.at(name + ".lora_B.weight"));
      }
      parts.push_back(y);
    }
    return at::cat(parts, -1);
  }
  // Leaves of the same values in float64.
  [[nodiscard]] std::map<std::string, at::Tensor> exact() const {
    std::map<std::string, at::Tensor> copies;
    for (const auto& [name, value] : values_)
      copies[name] =
          value.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).requires_grad_(value.requires_grad());
    return copies;
  }
  void forget_gradients() const {
    for (const auto& [name, value] : values_) value.mutable_grad() = at::Tensor();
  }
  void expect_gradients(const std::map<std::string, at::Tensor>& exact, double tolerance) const {
    for (const auto& [name, value] : values_) {
      EXPECT_EQ(value.grad().defined(), value.requires_grad()) << name;
      if (!value.grad().defined()) continue;
      EXPECT_LE(relative_error(value.grad(), exact.at(name).grad()), tolerance) << name;
    }
  }

 private:
  static std::shared_ptr<const LoraOptions> options(double dropout) {
    return std::make_shared<const LoraOptions>(
        LoraOptions{.rank = kRank, .scale = kScale, .dropout = dropout, .layers = {"q", "v"}});
  }

  Registry registry_;
  Linear q_, k_, v_;
  std::map<std::string, at::Tensor> values_;
};

void backward(const at::Tensor& y) {
  const at::Tensor upstream = at::sin(at::arange(y.numel(), at::kDouble) * 0.7 + 0.3).view(y.sizes());
  (y * upstream.to(y.scalar_type())).sum().backward();
}

class LoraTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(1); }
};

TEST_P(LoraTest, EqualsTheFormulaOnItsColumnsOfAPackedProduct) {
  // The second shape is beyond the size from which float32 takes oneDNN.
  for (const auto& [texts, tokens, in, out] : {std::array{2, 3, 8, 6}, std::array{4, 80, 96, 192}}) {
    const Adapted layers(in, out, GetParam());
    for (const bool input_has_gradient : {true, false}) {
      const at::Tensor x = at::randn({texts, tokens, in}, GetParam()).requires_grad_(input_has_gradient);
      const at::Tensor y = layers.packed(x, {});
      backward(y);
      const auto exact = layers.exact();
      const at::Tensor exact_x = x.detach().to(at::kDouble).clone().requires_grad_();
      const at::Tensor expected = Adapted::formula(exact, exact_x, exact_x);
      backward(expected);
      EXPECT_LE(relative_error(y, expected), tolerance_of(GetParam()));
      EXPECT_EQ(x.grad().defined(), input_has_gradient);
      EXPECT_LE(input_has_gradient ? relative_error(x.grad(), exact_x.grad()) : 0, tolerance_of(GetParam()));
      layers.expect_gradients(exact, tolerance_of(GetParam()));
      layers.forget_gradients();
    }
  }
}

TEST_P(LoraTest, DefersItsGradients) {
  const Adapted layers(8, 6, GetParam());
  const at::Tensor x = at::randn({5, 8}, GetParam()).requires_grad_();
  backward(layers.packed(x, {}));
  std::map<std::string, at::Tensor> expected;
  for (const std::string name : {"q.lora_A.weight", "q.lora_B.weight", "v.lora_A.weight", "v.lora_B.weight"})
    expected[name] = layers.value(name).grad();
  const at::Tensor expected_x = x.grad();
  layers.forget_gradients();
  x.mutable_grad() = at::Tensor();

  WeightGradQueue queue;
  backward(layers.packed(x, {.weight_queue = &queue}));
  EXPECT_TRUE(at::equal(x.grad(), expected_x));
  for (const auto& [name, gradient] : expected) {
    EXPECT_FALSE(layers.value(name).grad().defined()) << name;
    EXPECT_TRUE(queue.waits_for(layers.value(name))) << name;
  }
  EXPECT_FALSE(queue.waits_for(layers.value("q.weight")));
  queue.run();
  for (const auto& [name, gradient] : expected) EXPECT_TRUE(at::equal(layers.value(name).grad(), gradient)) << name;
}

TEST_P(LoraTest, BeginsWithoutAnEffectAndAsInPeft) {
  const auto options = std::make_shared<const LoraOptions>(LoraOptions{.rank = 4, .scale = 2, .layers = {"layer"}});
  Registry registry({.dtype = GetParam(), .lora = options}), plain({.dtype = GetParam()});
  const LinearInit init = LinearInit::torch_default(100);
  const Linear adapted(registry, "layer", 100, 30, init, WeightLayout::kInOut),
      other(plain, "layer", 100, 30, init, WeightLayout::kInOut);
  const at::Tensor x = at::randn({7, 100}, GetParam());
  EXPECT_TRUE(at::equal(adapted(x, {}), other(x, {})));
  const auto parameters = registry.parameters();
  ASSERT_EQ(parameters.size(), 4U);
  EXPECT_EQ(parameters[2]->name, "layer.lora_A.weight");
  EXPECT_EQ(parameters[2]->value.sizes(), (std::vector<std::int64_t>{4, 100}));
  EXPECT_LE(parameters[2]->value.abs().max().item<double>(), 0.1) << "kaiming_uniform_ with a = sqrt(5)";
  EXPECT_GE(parameters[2]->value.abs().max().item<double>(), 0.098);
  EXPECT_EQ(parameters[3]->name, "layer.lora_B.weight");
  EXPECT_EQ(parameters[3]->value.sizes(), (std::vector<std::int64_t>{30, 4}));
  ASSERT_EQ(registry.linears().size(), 1U);
  EXPECT_TRUE(registry.linears()[0].is_transposed);
}

INSTANTIATE_TEST_SUITE_P(Types, LoraTest, testing::Values(at::kFloat, at::kDouble));

TEST(Lora, DropsItsOwnInputByTheSample) {
  at::manual_seed(1);
  const Adapted layers(8, 6, at::kDouble, /*dropout=*/0.4);
  const at::Tensor x = at::randn({5, 3, 8}, at::kDouble);
  ForwardContext context{.training = true, .seed = 3, .step = 2, .sample_ids = at::arange(5) * 7};
  const at::Tensor mask = dropout_mask(x, 0.4, "q.lora_A.weight", context);
  const at::Tensor expected = Adapted::formula(layers.exact(), x, x * mask);
  EXPECT_LE(relative_error(layers.packed(x, context), expected), kDoubleTolerance);
  context.sample_ids = context.sample_ids.narrow(0, 2, 3);
  EXPECT_LE(relative_error(layers.packed(x.narrow(0, 2, 3), context), expected.narrow(0, 2, 3)), kDoubleTolerance);
  EXPECT_LE(relative_error(layers.packed(x, {}), Adapted::formula(layers.exact(), x, x)), kDoubleTolerance);
}

TEST(Lora, RoundsInBfloat16AsTheLayerDoes) {
  at::manual_seed(1);
  const Adapted layers(64, 32, at::kFloat, /*dropout=*/0, /*in_bf16=*/true);
  const at::Tensor x = at::randn({40, 64}).to(at::kBFloat16);
  const auto exact = layers.exact();
  const at::Tensor y = layers.packed(x, {}), wide = x.to(at::kDouble), expected = Adapted::formula(exact, wide, wide);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_LE(relative_error(y, expected), 5e-3);
  backward(y);
  backward(expected);
  EXPECT_EQ(layers.value("v.lora_A.weight").grad().scalar_type(), at::kFloat);
  layers.expect_gradients(exact, 2e-2);
}

}  // namespace
}  // namespace sluice::nn
