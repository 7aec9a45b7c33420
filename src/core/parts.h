// parts: splits numbered things into consecutive parts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace sluice {

struct NumberRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
  bool operator==(const NumberRange&) const = default;
};

// Where part `part` of 0 .. count - 1 begins. Sizes differ by at most one, larger parts first.
// Requires: parts > 0, 0 <= part <= parts.
[[nodiscard]] constexpr std::int64_t part_begin(std::int64_t count, std::int64_t parts, std::int64_t part) {
  return part * (count / parts) + std::min(part, count % parts);
}

[[nodiscard]] constexpr NumberRange part_range(std::int64_t count, std::int64_t parts, std::int64_t part) {
  return {part_begin(count, parts, part), part_begin(count, parts, part + 1)};
}

// A rule for splitting any number of things. Without weights, as part_range() does. With weights, sizes are
// proportional to them, each off by less than one.
class Parts {
 public:
  // Requires: number > 0; no weights, or `number` of them, each at least 0, with a sum above 0.
  Parts(std::int64_t number, std::vector<int> weights = {})  // NOLINT(google-explicit-constructor): parts = 4
      : number_(number), weights_(std::move(weights)) {}

  [[nodiscard]] std::int64_t number() const { return number_; }
  [[nodiscard]] std::int64_t begin(std::int64_t count, std::int64_t part) const {
    if (weights_.empty()) return part_begin(count, number_, part);
    return count * weight_before(part) / weight_before(number_);
  }
  [[nodiscard]] NumberRange range(std::int64_t count, std::int64_t part) const {
    return {begin(count, part), begin(count, part + 1)};
  }
  // [part]
  [[nodiscard]] std::vector<std::int64_t> sizes(std::int64_t count) const {
    std::vector<std::int64_t> sizes;
    for (std::int64_t part = 0; part < number_; ++part) sizes.push_back(range(count, part).size());
    return sizes;
  }
  [[nodiscard]] std::int64_t largest(std::int64_t count) const { return std::ranges::max(sizes(count)); }

 private:
  [[nodiscard]] std::int64_t weight_before(std::int64_t part) const {
    return std::accumulate(weights_.begin(), weights_.begin() + part, std::int64_t{0});
  }

  std::int64_t number_;
  std::vector<int> weights_;
};

}  // namespace sluice
