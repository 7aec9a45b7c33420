// layer_log: which layer of a thread's forward passes made the autograd functions with which sequence numbers, so that
// a backward function is known by its number. Layers are indices of names (names.h). Threads: written by the one that
// runs the forward pass, read by autograd's while that one waits for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sluice::profiler {

inline constexpr int kNoLayer = -1;

class LayerLog {
 public:
  // Functions from this number on are that layer's, until the next add().
  void add(std::uint64_t first, int layer) {
    if (entries_.size() == kMost) entries_.erase(entries_.begin(), entries_.begin() + kMost / 2);
    entries_.push_back({first, layer});
  }
  [[nodiscard]] int layer_of(std::uint64_t number) const {
    const auto after = std::ranges::upper_bound(entries_, number, {}, &Entry::first);
    return after == entries_.begin() || number == UINT64_MAX ? kNoLayer : (after - 1)->layer;
  }

 private:
  static constexpr std::size_t kMost = 1 << 15;  // of the newest functions, more than a step has
  struct Entry {
    std::uint64_t first;
    int layer;
  };
  std::vector<Entry> entries_;
};

}  // namespace sluice::profiler
