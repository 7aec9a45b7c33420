#include "profiler/nested_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "profiler/operator_flops.h"
#include "profiler/operator_profile.h"
#include "profiler/roofline.h"

namespace sluice::profiler {
namespace {

const std::array<char, 8> kMemory{};

// A call as it was made, and what NestedCalls made of it.
struct Made {
  Nanoseconds called, begins, ended, done;
  CallCost cost;
  std::vector<int> within;  // all calls in it, of any depth
  SelfCost told;
};

// Random calls within each other, told to NestedCalls as they begin and end.
class RandomCalls {
 public:
  explicit RandomCalls(unsigned seed) : random_(seed) {
    for (int i = 0; i < 4; ++i) {
      time_ += below(5);
      static_cast<void>(call(0));
    }
  }
  [[nodiscard]] const std::vector<Made>& calls() const { return calls_; }
  [[nodiscard]] Nanoseconds end() const { return time_; }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

  std::vector<int> call(int depth) {
    const auto number = static_cast<int>(calls_.size());
    calls_.push_back({.called = time_});
    time_ += below(4);
    calls_[number].begins = time_;
    nested_.enter(calls_[number].called, time_);
    std::vector<int> within;
    for (int i = below(4); depth < 4 && i > 0; --i) {
      time_ += below(6);
      for (const int inner : call(depth + 1)) within.push_back(inner);
    }
    time_ += below(6);
    Made& made = calls_[number];
    made.ended = time_;
    made.cost.flops = below(3) == 0 ? 1 + below(100) : 0;
    for (int i = below(4); i > 0; --i)
      made.cost.touched.push_back({&kMemory[below(kMemory.size())], 1 + static_cast<std::uint64_t>(below(9))});
    made.told = nested_.end_call(time_, made.cost);
    time_ += below(4);
    made.done = time_;
    nested_.end_watch(time_);
    made.within = within;
    within.push_back(number);
    return within;
  }

  std::mt19937 random_;
  NestedCalls nested_;
  Nanoseconds time_ = 0;
  std::vector<Made> calls_;
};

// Nanosecond by nanosecond: whose it is.
std::vector<Nanoseconds> self_times(const std::vector<Made>& calls, Nanoseconds end) {
  std::vector<int> owner(static_cast<std::size_t>(end), -1);
  const auto own = [&](Nanoseconds from, Nanoseconds to, int who) { std::fill(&owner[0] + from, &owner[0] + to, who); };
  for (int i = 0; i < static_cast<int>(calls.size()); ++i) {  // outer calls come first
    own(calls[i].called, calls[i].begins, -1);
    own(calls[i].begins, calls[i].ended, i);
    own(calls[i].ended, calls[i].done, -1);
  }
  std::vector<Nanoseconds> times;
  for (int i = 0; i < static_cast<int>(calls.size()); ++i) times.push_back(std::ranges::count(owner, i));
  return times;
}

std::map<const void*, std::uint64_t> memory_of(const Made& call) {
  std::map<const void*, std::uint64_t> all;
  for (const Touched& one : call.cost.touched) all[one.begin] = std::max(all[one.begin], one.bytes);
  return all;
}

TEST(NestedCalls, SelfTimeOperationsAndBytesAreThoseOfBruteForce) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const RandomCalls random(seed);
    const auto& calls = random.calls();
    const std::vector<Nanoseconds> times = self_times(calls, random.end());
    for (std::size_t i = 0; i < calls.size(); ++i) {
      bool inner_counts = false;
      auto bytes = memory_of(calls[i]);
      for (const int inner : calls[i].within) {
        inner_counts |= calls[inner].cost.flops > 0;
      }
      const bool counts = calls[i].cost.flops > 0 && !inner_counts;  // it works on all its tensors itself
      for (const int inner : calls[i].within) {
        for (const Touched& one : calls[inner].cost.touched) {
          if (!counts) bytes.erase(one.begin);
        }
      }
      std::uint64_t sum = 0;
      for (const auto& [begin, size] : bytes) sum += size;
      ASSERT_EQ(calls[i].told.self, times[i]) << "seed " << seed << " call " << i;
      ASSERT_EQ(calls[i].told.flops, inner_counts ? 0 : calls[i].cost.flops) << "seed " << seed << " call " << i;
      ASSERT_EQ(calls[i].told.bytes, sum) << "seed " << seed << " call " << i;
    }
  }
}

TEST(OperatorFlops, AreThoseOfClosedForms) {
  const auto flops = [](const char* name, const CallShapes& call) { return flop_formula(name)(call); };
  EXPECT_EQ(flops("aten::mm", {{{3, 5}, {5, 7}}, {}, {{3, 7}}}), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops("mkldnn::_linear_pointwise", {{{2, 3, 5}, {7, 5}, {}}, {}, {{2, 3, 7}}}), 2 * 6 * 5 * 7);
  // 4 images, 6 to 10 channels of 8x8, 3x3: as the direct algorithm.
  const double convolution = 2.0 * 4 * 10 * 64 * 6 * 9;
  EXPECT_EQ(flops("sluice::winograd_convolution", {{{4, 6, 8, 8}, {10, 6, 3, 3}, {}}, {}, {{4, 10, 8, 8}}}),
            convolution);
  EXPECT_EQ(flops("sluice::winograd_input_gradient", {{{4, 10, 8, 8}, {10, 6, 3, 3}}, {}, {{4, 6, 8, 8}}}),
            convolution);
  EXPECT_EQ(flops("sluice::winograd_weight_gradient", {{{4, 10, 8, 8}, {4, 6, 8, 8}}, {}, {{10, 6, 3, 3}}}),
            convolution);
  // Scores and their use: 2 products of [queries, width] and [keys, width] in each sample; backward 4.
  EXPECT_EQ(flops("sluice::attention", {{{}, {2, 9, 3 * 16}}, {}, {{2, 9, 16}}}), 2 * 2.0 * 2 * 9 * 9 * 16);
  EXPECT_EQ(flops("sluice::attention", {{{2, 1, 16}, {2, 9, 2 * 16}}, {}, {{2, 1, 16}}}), 2 * 2.0 * 2 * 1 * 9 * 16);
  EXPECT_EQ(flops("sluice::attention_backward", {{{2, 9, 16}, {}, {2, 9, 3 * 16}, {2, 4, 96}}, {}, {}}),
            4 * 2.0 * 2 * 9 * 9 * 16);
  EXPECT_THROW(static_cast<void>(flops("aten::mm", {})), std::out_of_range);
  EXPECT_THROW(static_cast<void>(flops("aten::convolution", {{{}, {}}, {}, {{}}})), std::out_of_range);
  EXPECT_EQ(flop_formula("aten::relu"), nullptr);
  EXPECT_EQ(flop_formula("aten::m"), nullptr);
}

TEST(Roofline, TheNearerPeakBoundsIfItIsNearEnough) {
  const MachinePeaks peaks{.flops_per_s = 100, .bytes_per_s = 10};
  EXPECT_EQ(roofline_of(60, 1, 1, peaks).bound, Bound::kCompute);
  EXPECT_EQ(roofline_of(60, 9, 1, peaks).bound, Bound::kMemory);
  EXPECT_EQ(roofline_of(100, 10, 1, peaks).bound, Bound::kCompute);
  EXPECT_EQ(roofline_of(30, 3, 1, peaks).bound, Bound::kNeither);
  EXPECT_EQ(roofline_of(30, 3, 0, peaks).bound, Bound::kNeither);
  const Roofline line = roofline_of(60, 9, 2, peaks);
  EXPECT_DOUBLE_EQ(line.of_flops, 0.3);
  EXPECT_DOUBLE_EQ(line.of_bytes, 0.45);
  // 3 s bound by memory, 2 s by products, 4 s between the operators.
  PassOperators pass{.seconds = 9, .watched_s = 9, .operators = {{"a", 1, 3, 0, 25}, {"b", 1, 2, 180, 0}}};
  EXPECT_EQ(bound_of(pass, peaks), Bound::kNeither);
  pass.watched_s = 7;
  EXPECT_EQ(bound_of(pass, peaks), Bound::kMemory);
}

}  // namespace
}  // namespace sluice::profiler
