#include "profiler/nested_calls.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace sluice::profiler {
namespace {

// Sorts by address. Of several entries with one address, the one with the most bytes stays.
void settle(std::vector<Touched>& all) {
  std::ranges::sort(all, [](const Touched& a, const Touched& b) {
    return a.begin != b.begin ? std::less<>()(a.begin, b.begin) : a.bytes > b.bytes;
  });
  const auto repeated = std::ranges::unique(all, {}, &Touched::begin);
  all.erase(repeated.begin(), repeated.end());
}

}  // namespace

void NestedCalls::enter(Nanoseconds called, Nanoseconds begins) { open_.push_back({called, begins}); }

SelfCost NestedCalls::end_call(Nanoseconds ended, CallCost whole) {
  Open call = std::move(open_.back());
  open_.pop_back();
  last_called_ = call.called;
  SelfCost own{.self = ended - call.begins - call.within, .flops = call.has_flops ? 0 : whole.flops};
  settle(whole.touched);
  settle(call.touched);
  for (const Touched& one : whole.touched) {
    if (own.flops > 0 || !std::ranges::binary_search(call.touched, one.begin, std::less<>(), &Touched::begin))
      own.bytes += one.bytes;
  }
  if (open_.empty()) return own;
  Open& outer = open_.back();
  outer.has_flops |= call.has_flops || whole.flops > 0;
  outer.touched.insert(outer.touched.end(), whole.touched.begin(), whole.touched.end());
  outer.touched.insert(outer.touched.end(), call.touched.begin(), call.touched.end());
  return own;
}

void NestedCalls::end_watch(Nanoseconds done) {
  if (!open_.empty()) open_.back().within += done - last_called_;
}

}  // namespace sluice::profiler
