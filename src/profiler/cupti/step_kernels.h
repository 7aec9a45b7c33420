// step_kernels: the steps of a run as the GPUs ran them: starts a session, and after each step puts what the records
// say in the place of what the events say. The first step is thrown away (session.h) and keeps its events. Not here:
// the marks in autograd's threads (autograd_marks.h). Threads: one, the one that drives the steps.
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
  // Of the step that has just ended, on streams that are idle. A stream that CUPTI does not know keeps its events; one
  // warning says so.
  [[nodiscard]] StepSpans attributed(StepSpans host);
  // What ran since the last step, such as an evaluation. What it finds of that step came too late for it, and counts as
  // dropped in the next one.
  void forget();

  // Of all steps but the first.
  struct Row {
    Phase phase;
    std::string layer;  // empty: not known
    std::string kernel;
    KernelTime sum;
  };
  [[nodiscard]] std::vector<Row> rows() const;  // the longest first
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] std::int64_t steps() const { return steps_; }

 private:
  std::unique_ptr<Session> session_;
  bool is_warm_ = false;
  bool has_warned_ = false;
  std::int64_t steps_ = 0;
  Nanoseconds end_of_last_ = 0;  // step whose records count; 0: there is none
  std::uint64_t late_ = 0;       // found since then
  KernelTable kernels_;
  Counts counts_;
};

}  // namespace sluice::cupti
