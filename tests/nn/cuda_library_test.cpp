// Layers that run LibTorch's GPU kernels, compared with the CPU in float64. Skips without a GPU.
#include <gtest/gtest.h>

#include "device/device.h"
#include "nn/attention.h"
#include "nn/batch_norm.h"
#include "nn/batch_norm_gpu.h"
#include "nn/compare.h"
#include "nn/registry.h"

namespace sluice::nn {
namespace {

const at::Device kGpu(at::kCUDA, 0);
constexpr auto kLast = at::MemoryFormat::ChannelsLast, kFirst = at::MemoryFormat::Contiguous;

class NnOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
    at::manual_seed(13);
  }
};

class Attention : public NnOnGpu {
 protected:
  void SetUp() override {
    NnOnGpu::SetUp();
    if (IsSkipped()) return;
    const at::Tensor heads = at::randn({2, 3, 64, 64}).to(kGpu, at::kBFloat16);
    static_cast<void>(at::_fused_sdp_choice(heads, heads, heads));  // the first choice sets LibTorch's order
    const auto order = at::globalContext().sDPPriorityOrder();
    usual_order_.assign(order.begin(), order.end());
  }
  void TearDown() override {
    if (!usual_order_.empty()) set_order(usual_order_);
    at::globalContext().setDeterministicAlgorithms(false, false);
  }

  static void set_order(const std::vector<at::SDPBackend>& order) {
    std::vector<std::int64_t> numbers;
    for (const at::SDPBackend backend : order) numbers.push_back(static_cast<std::int64_t>(backend));
    at::globalContext().setSDPPriorityOrder(numbers);
  }

  static Outcome attended(const at::Tensor& packed, bool causal) {
    const AttentionOptions options{.heads = 3, .site = "a", .causal = causal};
    return run_with_gradients([&](const Tensors& t) { return self_attention(t[0], options, {.training = true}); },
                              {packed});
  }

  std::vector<at::SDPBackend> usual_order_;
};

TEST_F(Attention, IsThatOfFloat64ByEveryBackend) {
  for (const std::int64_t tokens : {1, 65, 300}) {
    for (const bool causal : {false, true}) {
      const at::Tensor packed = at::randn({2, tokens, 3 * 192}).to(at::kBFloat16).to(at::kDouble);
      const Outcome exact = attended(packed, causal);
      expect_equal_outcomes(attended(packed.to(kGpu), causal), exact, 1e-12);
      expect_equal_outcomes(attended(packed.to(kGpu, at::kFloat), causal), exact, 1e-4);  // three TF32 products for one
      for (const at::SDPBackend first : usual_order_) {
        SCOPED_TRACE(testing::Message() << "first " << static_cast<int>(first) << ", " << tokens << " tokens");
        std::vector<at::SDPBackend> order{first};
        for (const at::SDPBackend other : usual_order_)
          if (other != first) order.push_back(other);
        set_order(order);
        expect_equal_outcomes(attended(packed.to(kGpu, at::kBFloat16), causal), exact, 2e-2);
      }
    }
  }
}

TEST_F(Attention, RepeatsBitForBitInDeterministicMode) {
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  const at::Tensor packed = at::randn({4, 256, 3 * 192}).to(kGpu, at::kBFloat16);
  const Outcome first = attended(packed, true);
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Outcome again = attended(packed, true);
    EXPECT_TRUE(at::equal(again.y, first.y));
    EXPECT_TRUE(at::equal(again.gradients[0], first.gradients[0]));
  }
}

class BatchNormOnGpu : public NnOnGpu {
 protected:
  struct Result {
    Outcome outcome;
    BatchStatistics statistics;
  };
  static Result ours(const Tensors& inputs, Activation activation) {
    Result result;
    result.outcome = run_with_gradients(
        [&](const Tensors& t) {
          BatchNormResult norm =
              batch_norm_training(t[0], t.size() > 3 ? t[3] : at::Tensor(), t[1], t[2], 1e-5, activation);
          result.statistics = norm.statistics;
          return norm.y;
        },
        inputs);
    return result;
  }

  // Against ATen in float64 on the CPU, which takes ReLU's side at 0 from us.
  static void expect_exact(const Tensors& inputs, at::ScalarType type, at::MemoryFormat layout, Activation activation) {
    Tensors exact, there;
    for (const at::Tensor& input : inputs) {
      exact.push_back(input.to(at::kDouble));
      there.push_back(input.dim() == 4 ? input.to(kGpu, type).contiguous(layout) : input.to(kGpu));
    }
    ASSERT_TRUE(batch_norm_runs_on_gpu(there[0], there[1]));
    const Result result = ours(there, activation);
    const at::Tensor open =
        activation == Activation::kRelu ? result.outcome.y.cpu().gt(0).to(at::kDouble) : at::ones({1}, at::kDouble);
    const auto reference = [&](const Tensors& t) {
      const at::Tensor y = at::batch_norm(t[0], t[1], t[2], {}, {}, true, 0.1, 1e-5, false);
      return (t.size() > 3 ? y + t[3] : y) * open;
    };
    expect_equal_outcomes(result.outcome, run_with_gradients(reference, exact), type == at::kFloat ? 1e-5 : 2e-2);
    const auto [variance, mean] = at::var_mean(exact[0], at::IntArrayRef{0, 2, 3}, /*unbiased=*/false);
    EXPECT_LE(relative_error(result.statistics.variance, variance), 1e-5);
    EXPECT_LE(relative_error(result.statistics.mean, mean), 1e-5);
    EXPECT_EQ(result.statistics.mean.scalar_type(), at::kFloat);
    EXPECT_EQ(result.statistics.count, inputs[0].numel() / inputs[0].size(1));
  }
};

TEST_F(BatchNormOnGpu, IsThatOfFloat64InBothLayouts) {
  for (const std::int64_t channels : {1, 5, 16, 132}) {
    const auto image = [&] { return (at::randn({3, channels, 7, 9}) * 2 + 1).to(at::kBFloat16).to(at::kFloat); };
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      if (channels == 1 && type == at::kBFloat16) continue;  // a sum that may be near 0, of rounded numbers
      for (const auto layout : {kLast, kFirst}) {
        for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
          for (const bool with_residual : {false, true}) {
            SCOPED_TRACE(testing::Message() << channels << " channels, " << type << ", layout "
                                            << static_cast<int>(layout) << ", residual " << with_residual);
            Tensors inputs{image(), at::randn({channels}), at::randn({channels})};
            if (with_residual) inputs.push_back(image());
            expect_exact(inputs, type, layout, activation);
          }
        }
      }
    }
  }
}

TEST_F(BatchNormOnGpu, HidesNoOverflow) {
  for (const float bad : {1e25F, std::numeric_limits<float>::quiet_NaN()}) {
    for (const auto layout : {kLast, kFirst}) {
      at::Tensor x = at::randn({2, 8, 4, 4}, kGpu).contiguous(layout);
      x[1][3][2][2] = bad;
      const at::Tensor ones = at::ones({8}, kGpu), zeros = at::zeros({8}, kGpu);
      const at::Tensor y = batch_norm_training(x, {}, ones, zeros, 1e-5, Activation::kRelu).y;
      EXPECT_TRUE(y.select(1, 3).isnan().all().item<bool>()) << bad;
      EXPECT_TRUE(y.select(1, 4).isfinite().all().item<bool>()) << bad;
    }
  }
}

struct Harness : RegisteredLayer {
  Harness() : RegisteredLayer("bn", {}), norm(registry_, "bn", 16) {}
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) override {
    return norm(x, context, Activation::kRelu);
  }
  BatchNorm2d norm;
};

TEST_F(BatchNormOnGpu, RunningStatisticsAreThoseOfTheCpu) {
  Harness here, there;
  for (Parameter* parameter : there.parameters()) parameter->value = parameter->value.detach().to(kGpu);
  for (Buffer* buffer : there.buffers()) buffer->value = buffer->value.to(kGpu);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = at::randn({4, 16, 5, 5}).contiguous(kLast) + step;
    static_cast<void>(here.forward(x, {.training = true}));
    static_cast<void>(there.forward(x.to(kGpu), {.training = true}));
  }
  for (std::size_t i = 0; i < here.buffers().size(); ++i)
    EXPECT_LE(relative_error(there.buffers()[i]->value, here.buffers()[i]->value), 1e-5) << here.buffers()[i]->name;
}

}  // namespace
}  // namespace sluice::nn
