#include "profiler/nested_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace sluice::profiler {
namespace {

const std::array<char, 8> kMemory{};

// A call as it was made, and what NestedCalls made of it.
struct Made {
  Nanoseconds called, begins, ended, done;
  CallCost cost;
  std::vector<int> within;  // all calls in it, of any depth
  SelfCost result;
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
    made.result = nested_.end_call(time_, made.cost);
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
      ASSERT_EQ(calls[i].result.self, times[i]) << "seed " << seed << " call " << i;
      ASSERT_EQ(calls[i].result.flops, inner_counts ? 0 : calls[i].cost.flops) << "seed " << seed << " call " << i;
      ASSERT_EQ(calls[i].result.bytes, sum) << "seed " << seed << " call " << i;
    }
  }
}

}  // namespace
}  // namespace sluice::profiler
