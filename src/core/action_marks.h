// action_marks: what tells a profiler, while an action runs or its work is being queued, whose work it is. Null where
// none is on: then it costs one branch. Not here: what is done with it (profiler/cupti, profiler/torch_trace).
// Threads: each calls leave() as often as it has called enter() or enter_layer(), the last one first. None throws.
#pragma once

#include <string>

#include "core/ids.h"
#include "core/recorder.h"

namespace sluice {

struct ActionTag {
  Phase phase;
  ReplicaId replica;
  StageId stage = kNoStage;
  MicroBatchId micro_batch = kNoMicroBatch;

  bool operator==(const ActionTag&) const = default;
};

class ActionMarks {
 public:
  virtual ~ActionMarks() = default;
  virtual void enter(const ActionTag& action) noexcept = 0;
  // Within an action: a layer of it, until leave().
  virtual void enter_layer(const std::string& name) noexcept = 0;
  virtual void leave() noexcept = 0;
};

// A layer of the action that runs, during its life.
class LayerMark {
 public:
  LayerMark(ActionMarks* marks, const std::string& name) : marks_(marks) {
    if (marks_ != nullptr) marks_->enter_layer(name);
  }
  ~LayerMark() {
    if (marks_ != nullptr) marks_->leave();
  }
  LayerMark(const LayerMark&) = delete;
  LayerMark& operator=(const LayerMark&) = delete;

 private:
  ActionMarks* marks_;
};

}  // namespace sluice
