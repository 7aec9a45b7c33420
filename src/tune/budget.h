// budget: how `sluice tune` divides its seconds. The parts come one after the other: measuring the layers; where the
// batch may change, searching for each batch and the run that finds its gradient noise; searching; running plans. Each
// has a share of the whole, and what one leaves is for the runs. Not here: who obeys (train/study/tuning.h). Pure but
// for the clock that is handed in. Threads: one. Units: seconds.
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
  // The share after which nothing is begun or waited for: ending processes and writing files takes the rest.
  static constexpr double kUsable = 0.95;

  // clock: seconds since any start. Measuring began so many seconds ago. may_change_batch: else its two parts have no
  // share.
  Budget(double seconds, bool may_change_batch, std::function<double()> clock, double seconds_ago = 0);

  // Ends the part before. Requires: no later one has begun.
  void begin(Part part);
  // What the part that has begun may still take: of its share, and before the shares of those after it, but the runs'.
  // Searching has its whole share, however late it begins: without a search there is no plan. Runs have kUsable of the
  // whole.
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
  [[nodiscard]] double end_of(Part part) const;  // since the start

  double seconds_;
  bool may_change_batch_;
  std::function<double()> clock_;
  double begin_;
  double part_begin_;
  Part now_ = Part::kMeasuring;
  std::array<double, kParts> used_{};  // of parts that are over
};

}  // namespace sluice::tune
