#include "core/rng.h"

#include <Random123/philox.h>

#include <cmath>
#include <numbers>

#include "core/check.h"

namespace sluice {

std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t high, std::uint64_t low) {
  const auto lower = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto upper = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  const r123::Philox4x32::ctr_type counter{{lower(low), upper(low), lower(high), upper(high)}};
  const r123::Philox4x32::key_type philox_key{{lower(key), upper(key)}};
  const auto block = r123::Philox4x32{}(counter, philox_key);
  return {block[0], block[1], block[2], block[3]};
}

std::uint64_t derive_key(std::uint64_t key, std::uint64_t value) {
  const auto block = philox(key, kDerivedKeyCounter, value);
  return (std::uint64_t{block[1]} << 32) | block[0];
}

std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ULL;
  return hash;
}

RngStream::result_type RngStream::operator()() {
  if (used_ == block_.size()) {
    block_ = philox(key_, 0, counter_++);
    used_ = 0;
  }
  return block_[used_++];
}

double RngStream::uniform() {
  const std::uint64_t high = (*this)() >> 5;
  const std::uint64_t low = (*this)() >> 6;
  return static_cast<double>((high << 26) | low) * 0x1.0p-53;
}

double RngStream::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

std::uint64_t RngStream::below(std::uint64_t bound) {
  check(bound > 0, "a positive bound for RngStream::below");
  const std::uint64_t limit = ~std::uint64_t{0} - ~std::uint64_t{0} % bound;  // largest multiple of `bound` in 64 bits
  for (;;) {
    const std::uint64_t word = (std::uint64_t{(*this)()} << 32) | (*this)();
    if (word < limit) return word % bound;
  }
}

}  // namespace sluice
