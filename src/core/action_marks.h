// action_marks: reports which action a thread runs, so that a profiler can label it. A null ActionMarks* means that no
// profiler is on. Threads: each calls leave() once per enter() and enter_layer(), innermost first. Nothing throws.
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
  virtual void enter_layer(const std::string& name) noexcept = 0;
  virtual void leave() noexcept = 0;
};

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
