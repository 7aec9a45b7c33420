// Runs calls of operators with a formula and prints what each counted: name, operations. operator_flops_test.py makes
// the same calls in Python and has PyTorch count them.
#include <ATen/ATen.h>

#include <functional>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include "profiler/operators/operator_watch.h"

namespace {

using sluice::operators::OperatorWatch;

at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes); }

void convolution_backward(bool transposed, std::int64_t groups, std::array<bool, 3> wanted) {
  const at::Tensor x = random({2, 6, 9, 7}),
                   weight = transposed ? random({6, 8 / groups, 3, 3}) : random({8, 6 / groups, 3, 3});
  const at::Tensor y = at::convolution(x, weight, {}, {2, 1}, {1, 1}, {1, 1}, transposed, {0, 0}, groups);
  const std::int64_t outputs = 8;
  static_cast<void>(at::convolution_backward(at::ones_like(y), x, weight, at::OptionalIntArrayRef(outputs), {2, 1},
                                             {1, 1}, {1, 1}, transposed, {0, 0}, groups, wanted));
}

void attention(bool with_backward) {
  const at::Tensor q = random({2, 3, 5, 8}), k = random({2, 3, 7, 8}), v = random({2, 3, 7, 8});
  const auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v);
  if (!with_backward) return;
  static_cast<void>(at::_scaled_dot_product_flash_attention_for_cpu_backward(out, q, k, v, out, sums, 0.0, false));
}

struct Case {
  std::string name;
  std::function<void()> run;
};

const std::vector<Case> kCases{
    {"mm",
     [] {
       at::mm(random({3, 5}), random({5, 7}));
     }},
    {"addmm",
     [] {
       at::addmm(random({7}), random({3, 5}), random({5, 7}));
     }},
    {"bmm",
     [] {
       at::bmm(random({4, 3, 5}), random({4, 5, 7}));
     }},
    {"baddbmm",
     [] {
       at::baddbmm(random({4, 3, 7}), random({4, 3, 5}), random({4, 5, 7}));
     }},
    {"linear",
     [] {
       at::linear(random({4, 3, 5}), random({7, 5}), random({7}));
     }},
    {"matmul",
     [] {
       at::matmul(random({4, 2, 3, 5}), random({4, 2, 5, 7}));
     }},
    {"conv2d",
     [] {
       at::conv2d(random({2, 6, 9, 7}), random({8, 6, 3, 3}), random({8}), {2, 1}, {1, 1});
     }},
    {"conv2d groups",
     [] {
       at::conv2d(random({2, 6, 9, 7}), random({8, 3, 3, 3}), {}, {2, 1}, {1, 1}, 1, 2);
     }},
    {"conv2d double",
     [] {
       at::conv2d(random({2, 6, 9, 7}).to(at::kDouble), random({8, 6, 3, 3}).to(at::kDouble), {}, {2, 1}, {1, 1});
     }},
    {"conv_transpose2d",
     [] {
       at::conv_transpose2d(random({2, 6, 9, 7}), random({6, 8, 3, 3}), {}, {2, 1}, {1, 1});
     }},
    {"convolution_backward all",
     [] {
       convolution_backward(false, 1, {true, true, true});
     }},
    {"convolution_backward input",
     [] {
       convolution_backward(false, 1, {true, false, false});
     }},
    {"convolution_backward weight",
     [] {
       convolution_backward(false, 1, {false, true, false});
     }},
    {"convolution_backward groups",
     [] {
       convolution_backward(false, 2, {true, false, false});
     }},
    {"convolution_backward transposed",
     [] {
       convolution_backward(true, 1, {true, true, true});
     }},
    {"attention", [] { attention(false); }},
    {"attention and backward", [] { attention(true); }},
};

}  // namespace

int main() {
  for (const Case& one : kCases) {
    OperatorWatch watch(OperatorWatch::Threads::kThisOne);
    watch.enter(0, sluice::profiler::Pass::kForward);
    one.run();
    watch.leave();
    double flops = 0;
    for (const auto& [key, sum] : watch.take()) flops += sum.flops;
    std::cout << one.name << '\t' << static_cast<std::int64_t>(flops) << '\n';
  }
}
