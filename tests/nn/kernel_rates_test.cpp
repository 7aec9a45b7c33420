// Rates of our GPU kernels beside ATen's and beside a copy in GPU memory, for scripts/gpu_check.sh. Shapes are those of
// ViT-B/16, GPT-2 small and ResNet-50. No bounds: only a wrong launch fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/text.h"
#include "device/device.h"
#include "device/stream.h"
#include "nn/cuda/operations.h"

namespace sluice::nn {
namespace {

const at::Device kGpu(at::kCUDA, 0);

at::Tensor random(at::IntArrayRef sizes, at::ScalarType type) { return at::randn(sizes, kGpu).to(type); }
double bytes(const at::Tensor& tensor) { return static_cast<double>(tensor.nbytes()); }

class KernelRates : public testing::Test {
 protected:
  void SetUp() override {
    if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
    ASSERT_TRUE(gpu::has_kernels()) << "built without nvcc";
  }

  // Median of several sequences of calls, in seconds a call.
  static double seconds_of(const std::function<at::Tensor()>& call) {
    constexpr int kSequences = 5, kCalls = 20;
    const device::Stream stream = device::Stream::current({device::DeviceKind::kCuda, 0});
    call();
    std::vector<double> times;
    for (int i = 0; i < kSequences; ++i) {
      stream.synchronize();
      const Nanoseconds begin = now_ns();
      for (int j = 0; j < kCalls; ++j) call();
      stream.synchronize();
      times.push_back(to_s(now_ns() - begin) / kCalls);
    }
    std::ranges::nth_element(times, times.begin() + kSequences / 2);
    return times[kSequences / 2];
  }

  // bytes: read and written by one call.
  void compare(const std::string& what, double bytes, const std::function<at::Tensor()>& ours,
               const std::function<at::Tensor()>& atens) {
    const double own = bytes / seconds_of(ours) / 1e9, other = bytes / seconds_of(atens) / 1e9;
    std::printf("%-28s %7.0f GB/s, ATen %7.0f GB/s\n", what.c_str(), own, other);
    result_ += concat(result_.empty() ? "" : ", ", what, " ", fixed(own, 0), " (", fixed(other, 0), ")");
  }

  void compare_norms(std::int64_t rows) {
    const at::Tensor x = random({rows, 768}, at::kFloat), weight = at::ones({768}, kGpu), bias = at::zeros({768}, kGpu);
    const auto kept = gpu::layer_norm(x, weight, bias, 1e-5, at::kBFloat16);
    const auto ours = [&] { return gpu::layer_norm(x, weight, bias, 1e-5, at::kBFloat16).y; };
    const auto atens = [&] { return at::layer_norm(x, {768}, weight, bias, 1e-5).to(at::kBFloat16); };
    compare(concat("layer norm [", rows, ", 768]"), 1.5 * bytes(x), ours, atens);
    const auto our_backward = [&] {
      return gpu::layer_norm_backward(kept.y, x, weight, kept.mean, kept.inverse_deviation, {true, true}).x;
    };
    const at::Tensor mean = kept.mean.unsqueeze(1), inverse = kept.inverse_deviation.unsqueeze(1);
    const auto atens_backward = [&] {
      const at::Tensor grad = kept.y.to(at::kFloat);
      return std::get<0>(
          at::native_layer_norm_backward(grad, x, {768}, mean, inverse, weight, bias, {true, true, true}));
    };
    compare("its backward", 2.5 * bytes(x), our_backward, atens_backward);
  }

  void compare_gelu(std::int64_t rows) {
    const at::Tensor x = random({rows, 3072}, at::kBFloat16), bias = random({3072}, at::kFloat);
    const auto before = [&] { return x + bias.to(at::kBFloat16); };
    const auto ours = [&] { return gpu::bias_gelu(x, bias, gpu::GeluForm::kExact); };
    compare(concat("bias + GELU [", rows, ", 3072]"), 2 * bytes(x), ours, [&] { return at::gelu(before()); });
    const at::Tensor kept = before();
    const auto our_backward = [&] { return gpu::bias_gelu_backward(x, x, bias, gpu::GeluForm::kExact, true).x; };
    compare("its backward", 3 * bytes(x), our_backward, [&] { return at::gelu_backward(x, kept).sum(0); });
  }

  void compare_losses() {
    const at::Tensor logits = random({8192, 50257}, at::kBFloat16), factor = at::ones({}, kGpu),
                     targets = at::randint(50257, {8192}, at::TensorOptions().device(kGpu).dtype(at::kLong));
    const auto kept = gpu::cross_entropy(logits, targets, 0);
    compare(
        "cross-entropy [8192, 50257]", bytes(logits), [&] { return gpu::cross_entropy(logits, targets, 0).losses; },
        [&] { return at::log_softmax(logits, 1, at::kFloat).gather(1, targets.unsqueeze(1)); });
    compare(
        "its backward", 2 * bytes(logits),
        [&] { return gpu::cross_entropy_backward(logits, targets, kept.log_sums, factor, 0); },
        [&] { return at::_softmax(logits, 1, false); });
    compare(
        "hits", bytes(logits), [&] { return gpu::count_hits(logits, targets); },
        [&] { return logits.argmax(1).eq(targets).sum(); });
  }

  void compare_others() {
    const at::Tensor x = random({256, 197 * 768}, at::kBFloat16), ids = at::arange(256, kGpu);
    const gpu::MaskNumbers mask{.layer_key = 7, .threshold = std::uint64_t{1} << 29, .kept = 1.14F};
    compare(
        "dropout", 2 * bytes(x), [&] { return gpu::dropout(x, ids, mask); },
        [&] { return std::get<0>(at::native_dropout(x, 0.125, true)); });
    at::Tensor y = random({64, 256, 56, 56}, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor residual = at::ones_like(y), inverse = at::ones({256}, kGpu);
    const auto ours = [&] {
      gpu::finish_batch_norm(y, residual, inverse, true);
      return y;
    };
    compare("batch norm's end", 3 * bytes(y), ours, [&] { return at::relu_(y.add_(residual)); });
  }

  std::string result_;
};

TEST_F(KernelRates, BesideAtensAndACopy) {
  const at::NoGradGuard no_grad;
  const at::Tensor from = random({1 << 27}, at::kBFloat16), to = at::empty_like(from);
  const auto copy = [&] { return to.copy_(from); };
  compare("copy", 2 * bytes(from), copy, copy);
  for (const std::int64_t rows : {64 * 197, 16 * 1024}) {
    compare_norms(rows);
    compare_gelu(rows);
  }
  compare_losses();
  compare_others();
  std::printf("result: GB/s, ATen in brackets: %s\n", result_.c_str());
}

}  // namespace
}  // namespace sluice::nn
