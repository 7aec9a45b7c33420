#include "profiler/cupti/autograd_marks.h"

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <thread>
#include <vector>

namespace sluice::cupti {
namespace {

std::uint64_t top_tag() {
  static auto* const function =
      reinterpret_cast<std::uint64_t (*)()>(dlsym(dlopen(PLAYED_CUPTI, RTLD_NOW | RTLD_LOCAL), "played_top_tag"));
  return function();
}

std::vector<Tag> seen;  // by the backward functions, in their order

struct Look : torch::autograd::Function<Look> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) { return input * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    seen.push_back(top_tag());
    return {gradients[0] * 2};
  }
};

// As autograd's engine does it for a GPU: the backward runs in another thread, which has this one's local state.
TEST(AutogradMarks, ABackwardInAnotherThreadHasTheActionsTagAndItsLayers) {
  std::string why;
  const auto session = Session::start({.library = PLAYED_CUPTI}, why);
  ASSERT_NE(session, nullptr) << why;
  {
    AutogradMarks marks(*session);
    const at::Tensor leaf = at::ones({2}).requires_grad_();
    at::Tensor output;
    const ActionTag forward{Phase::kForward, ReplicaId{1}, StageId{2}, MicroBatchId{3}};
    marks.enter(forward);
    {
      const LayerMark first(&marks, "first");
      output = Look::apply(leaf);
      EXPECT_EQ(decode(top_tag()).action, forward);
      EXPECT_EQ(session->names().name(decode(top_tag()).layer), "first");
    }
    EXPECT_EQ(decode(top_tag()).layer, kNoLayer);
    {
      const LayerMark second(&marks, "second");
      output = Look::apply(output);
    }
    output = Look::apply(output);  // of no layer
    marks.leave();
    EXPECT_EQ(top_tag(), kNoTag);

    const ActionTag backward{Phase::kBackward, ReplicaId{1}, StageId{2}, MicroBatchId{3}};
    marks.enter(backward);
    std::thread([&, state = at::ThreadLocalState()] {
      const at::ThreadLocalStateGuard guard(state);
      output.sum().backward();
      EXPECT_EQ(top_tag(), kNoTag);  // each function took its own away
    }).join();
    marks.leave();
    ASSERT_EQ(seen.size(), 3U);
    for (const Tag tag : seen) EXPECT_EQ(decode(tag).action, backward);
    EXPECT_EQ(decode(seen[0]).layer, kNoLayer);
    EXPECT_EQ(session->names().name(decode(seen[1]).layer), "second");
    EXPECT_EQ(session->names().name(decode(seen[2]).layer), "first");
  }
  seen.clear();
  Look::apply(at::ones({2}).requires_grad_()).sum().backward();
  EXPECT_EQ(seen, std::vector<Tag>{kNoTag});  // off: nothing is called
}

}  // namespace
}  // namespace sluice::cupti
