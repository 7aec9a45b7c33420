// pass_times: how long the passes of some steps took, and how much of that their stages worked, from recorded spans.
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
  explicit PassTimes(int stages) : work_(static_cast<std::size_t>(stages)) {}

  // A pass lasts from the first begin to the last end of what any place does for a micro-batch; work is forward (with
  // the loss, which lies within its span) and backward, without waiting and handing over.
  void add(const StepSpans& step) {
    Nanoseconds begin = std::numeric_limits<Nanoseconds>::max(), end = 0;
    for (const auto& place : step.places) {
      for (const Span& span : place.spans) {
        if (span.micro_batch == kNoMicroBatch) continue;
        begin = std::min(begin, span.begin);
        end = std::max(end, span.end);
        if (is_work(span.phase)) work_[static_cast<std::size_t>(index(span.stage))] += span.end - span.begin;
      }
    }
    if (end == 0) return;  // nothing was recorded
    whole_ += end - begin;
    ++passes_;
  }

  // Means over the passes; 0 without any.
  [[nodiscard]] double pass_ms() const { return per_pass(whole_); }
  [[nodiscard]] std::vector<double> stage_ms(int micro_batches) const {  // [stage], of one micro-batch
    std::vector<double> stages;
    for (const Nanoseconds work : work_) stages.push_back(per_pass(work) / micro_batches);
    return stages;
  }

 private:
  static bool is_work(Phase phase) {
    return phase == Phase::kForward || phase == Phase::kBackward || phase == Phase::kWeightGradient;
  }
  [[nodiscard]] double per_pass(Nanoseconds time) const { return passes_ > 0 ? to_ms(time) / passes_ : 0.0; }

  std::vector<Nanoseconds> work_;  // [stage]
  Nanoseconds whole_ = 0;
  int passes_ = 0;
};

}  // namespace sluice
