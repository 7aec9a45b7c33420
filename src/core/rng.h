// rng: keyed random numbers. A value is a pure function of (key, counter), so it does not depend on threads, stages,
// replicas or earlier draws. Generator: Philox4x32-10 (Salmon et al., SC 2011), from the Random123 library.
// Threads: functions are pure; an RngStream belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace sluice {

// Four independent uniform words for the 64-bit key and the 128-bit counter (high, low).
[[nodiscard]] std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t high, std::uint64_t low);

// Upper half of the counter for derived keys, "sluice" in ASCII. No other draw uses this counter.
inline constexpr std::uint64_t kDerivedKeyCounter = 0x736c75696365U;
// Mixes a value into a key: derive_key(derive_key(seed, epoch), index). Not commutative.
[[nodiscard]] std::uint64_t derive_key(std::uint64_t key, std::uint64_t value);

// FNV-1a hash, 64 bits. Gives a parameter or a purpose ("shuffle", "augment") its own key.
[[nodiscard]] std::uint64_t hash_name(std::string_view name);

// Finalizer of SplitMix64: spreads neighbouring numbers over all 64 bits.
[[nodiscard]] constexpr std::uint64_t splitmix64(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31U);
}

class RngStream {
 public:
  using result_type = std::uint32_t;

  explicit RngStream(std::uint64_t key) : key_(key) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return 0xffffffffU; }
  result_type operator()();

  double uniform();
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  double normal();                           // mean 0, standard deviation 1 (Box-Muller)
  std::uint64_t below(std::uint64_t bound);  // uniform in [0, bound), unbiased; requires bound > 0

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
  std::array<std::uint32_t, 4> block_{};
  unsigned used_ = 4;
};

// Permutes `items` uniformly (Fisher-Yates).
template <typename Items>
void shuffle(Items& items, RngStream& rng) {
  for (std::size_t left = items.size(); left > 1; --left) std::swap(items[left - 1], items[rng.below(left)]);
}

}  // namespace sluice
