// pass_times: the duration of passes, and how long their stages worked, from recorded spans.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "core/clock.h"
#include "core/ids.h"
#include "core/recorder.h"

namespace sluice {

class PassTimes {
 public:
  explicit PassTimes(int stages)
      : forward_(static_cast<std::size_t>(stages)), backward_(static_cast<std::size_t>(stages)) {}

  // A pass lasts from the first begin to the last end of any span of a micro-batch. Work is forward (including the
  // loss) and backward, without waiting and transfers.
  void add(const StepSpans& step) {
    Nanoseconds begin = std::numeric_limits<Nanoseconds>::max(), end = 0;
    frozen_.resize(step.slots.size());
    for (std::size_t slot = 0; slot < step.slots.size(); ++slot) {
      for (const Span& span : step.slots[slot].spans) {
        if (span.micro_batch == kNoMicroBatch) continue;
        begin = std::min(begin, span.begin);
        end = std::max(end, span.end);
        if (span.stage == kNoStage) {
          if (span.phase == Phase::kForward) frozen_[slot] += span.end - span.begin;
          continue;
        }
        const auto stage = static_cast<std::size_t>(index(span.stage));
        if (span.phase == Phase::kForward) forward_[stage] += span.end - span.begin;
        if (is_backward(span.phase)) backward_[stage] += span.end - span.begin;
      }
    }
    if (end == 0) return;  // no spans were recorded
    whole_ += end - begin;
    ++passes_;
  }

  // Means over the passes; 0 without passes.
  [[nodiscard]] double pass_ms() const { return per_pass(whole_); }
  // [stage], per micro-batch.
  [[nodiscard]] std::vector<double> forward_ms(int micro_batches) const { return means(forward_, micro_batches); }
  [[nodiscard]] std::vector<double> backward_ms(int micro_batches) const { return means(backward_, micro_batches); }
  // [slot]: forward of its share of the frozen layers, per pass.
  [[nodiscard]] std::vector<double> frozen_ms() const { return means(frozen_, 1); }

 private:
  static bool is_backward(Phase phase) { return phase == Phase::kBackward || phase == Phase::kWeightGradient; }
  [[nodiscard]] std::vector<double> means(const std::vector<Nanoseconds>& stages, int micro_batches) const {
    std::vector<double> result;
    for (const Nanoseconds time : stages) result.push_back(per_pass(time) / micro_batches);
    return result;
  }
  [[nodiscard]] double per_pass(Nanoseconds time) const { return passes_ > 0 ? to_ms(time) / passes_ : 0.0; }

  std::vector<Nanoseconds> forward_, backward_;  // [stage]
  std::vector<Nanoseconds> frozen_;              // [slot]
  Nanoseconds whole_ = 0;
  int passes_ = 0;
};

}  // namespace sluice
