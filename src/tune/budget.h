// budget: divides the seconds of `sluice tune` among its parts, which run in the order of Part. Running plans gets what
// the other parts leave. Pure except for the clock. Threads: one.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace sluice::tune {

class Budget {
 public:
  enum class Part : std::uint8_t { kMeasuring, kBatches, kNoise, kSearching, kRunning };
  static constexpr std::size_t kParts = 5;
  // No work starts or is waited for after this share. The rest is for ending processes and writing files.
  static constexpr double kUsable = 0.95;

  // clock: seconds since any start. seconds_ago: time since measuring began. may_change_batch: if false, kBatches and
  // kNoise have no share.
  Budget(double seconds, bool may_change_batch, std::function<double()> clock, double seconds_ago = 0);

  // Ends the previous part. Requires: no later part has begun.
  void begin(Part part);
  // Seconds that the current part may still take. A late part keeps the shares of later parts free, except that of the
  // runs. Searching always gets its whole share, because there is no plan without a search. Runs may use kUsable.
  [[nodiscard]] double left() const;

  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] double used() const { return clock_() - begin_; }
  [[nodiscard]] double used_by(Part part) const;

  // "measuring at most 72.0 s, searching at most 24.0 s, running plans with what is left"
  [[nodiscard]] std::string describe() const;
  // "36.1 of 120.0 s: measuring 21.0 s, searching 3.2 s, running plans 11.9 s"
  [[nodiscard]] std::string describe_use() const;

 private:
  [[nodiscard]] double share(Part part) const;
  [[nodiscard]] double end_of(Part part) const;

  double seconds_;
  bool may_change_batch_;
  std::function<double()> clock_;
  double begin_;
  double part_begin_;
  Part now_ = Part::kMeasuring;
  std::array<double, kParts> used_{};
};

}  // namespace sluice::tune
