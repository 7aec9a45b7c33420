// deadline: a point in time that ends a search or a measurement; without a clock it never comes. A value. Threads: any.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace sluice::tune {

class Deadline {
 public:
  // clock: in seconds, like `at`.
  explicit Deadline(std::function<double()> clock = {}, double at = 0) : clock_(std::move(clock)), at_(at) {}

  [[nodiscard]] bool is_limited() const { return static_cast<bool>(clock_); }
  [[nodiscard]] bool is_over() const { return clock_ && clock_() >= at_; }
  [[nodiscard]] double left() const {
    return clock_ ? std::max(0.0, at_ - clock_()) : std::numeric_limits<double>::infinity();
  }
  [[nodiscard]] Deadline share(double of_it) const {
    return clock_ ? Deadline(clock_, at_ - (1 - of_it) * left()) : *this;
  }

 private:
  std::function<double()> clock_;
  double at_;
};

}  // namespace sluice::tune
