// trace_marks: names the executor's actions and layers in traces of LibTorch's profiler ("forward, replica 0 stage 1,
// micro-batch 2") and for an operator watch. The loss counts as a layer. Threads: any, per thread
// (core/action_marks.h).
#pragma once

#include <string>

#include "core/action_marks.h"
#include "profiler/names.h"
#include "profiler/operators/operator_watch.h"

namespace sluice::torch_trace {

class TraceMarks final : public ActionMarks {
 public:
  explicit TraceMarks(operators::OperatorWatch* watch) : watch_(watch) {}

  void enter(const ActionTag& action) noexcept override;
  void enter_layer(const std::string& name) noexcept override;
  void leave() noexcept override;

  [[nodiscard]] const profiler::Names& layers() const { return layers_; }

 private:
  void enter_watch(const ActionTag& action);

  operators::OperatorWatch* watch_;
  profiler::Names layers_;
};

}  // namespace sluice::torch_trace
