// trace_marks: names what the executor does in the traces of LibTorch's profiler ("forward, replica 0 stage 1,
// micro-batch 2", and within it each layer), and tells a watch of operators, if there is one, where each thread is. The
// loss counts as a layer of its own, "loss". Threads: any, each for itself (core/action_marks.h).
#pragma once

#include <string>

#include "core/action_marks.h"
#include "profiler/names.h"
#include "profiler/operators/operator_watch.h"

namespace sluice::torch_trace {

class TraceMarks final : public ActionMarks {
 public:
  // watch: null: there is none.
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
