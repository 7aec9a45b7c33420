// step_kernels: replaces the event times of each step but the first (session.h) by GPU records. Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "profiler/cupti/attribute.h"
#include "profiler/cupti/session.h"

namespace sluice::cupti {

class StepKernels {
 public:
  explicit StepKernels(std::unique_ptr<Session> session) : session_(std::move(session)) {}

  [[nodiscard]] Session& session() { return *session_; }
  // For the step that has just ended; its streams must be idle. A stream that CUPTI does not know keeps event times.
  [[nodiscard]] StepSpans attributed(StepSpans host);
  // Discards records since the last step, for example of an evaluation; late ones count as dropped in the next step.
  void forget();

  // Sums over all steps except the first.
  struct Row {
    Phase phase;
    std::string layer;
    std::string kernel;
    KernelTime sum;
  };
  [[nodiscard]] std::vector<Row> rows() const;
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] std::int64_t steps() const { return steps_; }

 private:
  std::unique_ptr<Session> session_;
  bool is_warm_ = false;
  bool has_warned_ = false;
  std::int64_t steps_ = 0;
  Nanoseconds end_of_last_ = 0;  // of the last step whose records count; 0: none
  std::uint64_t late_ = 0;
  KernelTable kernels_;
  Counts counts_;
};

}  // namespace sluice::cupti
