// layer_log: maps sequence numbers of autograd functions to layers. Written in forward, read by autograd's threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sluice::profiler {

inline constexpr int kNoLayer = -1;

class LayerLog {
 public:
  // Functions from this number on belong to `layer`, until the next add().
  void add(std::uint64_t first, int layer) {
    if (entries_.size() == kMost) entries_.erase(entries_.begin(), entries_.begin() + kMost / 2);
    entries_.push_back({first, layer});
  }
  [[nodiscard]] int layer_of(std::uint64_t number) const {
    const auto after = std::ranges::upper_bound(entries_, number, {}, &Entry::first);
    return after == entries_.begin() || number == UINT64_MAX ? kNoLayer : (after - 1)->layer;
  }

 private:
  static constexpr std::size_t kMost = 1 << 15;  // newest functions; more than a step has
  struct Entry {
    std::uint64_t first;
    int layer;
  };
  std::vector<Entry> entries_;
};

}  // namespace sluice::profiler
