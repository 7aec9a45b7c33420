// marks_holder: holds the marks that a recorder tells of actions (core/action_marks.h), with what they need, and ends
// the telling before they go. A run that ends with an error may leave a thread behind, which may still mark its actions
// when it wakes: then what it calls stays until the process ends. Threads: one.
#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "core/recorder.h"

namespace sluice::train {

// Held: has `marks`.
template <typename Held>
class MarksHolder {
 public:
  // Requires: the recorder outlives it.
  explicit MarksHolder(Recorder& recorder, std::unique_ptr<Held> held = nullptr)
      : recorder_(recorder), held_(std::move(held)) {}
  ~MarksHolder() {
    detach_marks();
    if (std::uncaught_exceptions() > 0) static_cast<void>(held_.release());
  }
  MarksHolder(const MarksHolder&) = delete;
  MarksHolder& operator=(const MarksHolder&) = delete;

  // No marks are set before attach_marks().
  void hold(std::unique_ptr<Held> held) {
    detach_marks();
    held_ = std::move(held);
  }
  [[nodiscard]] std::unique_ptr<Held> take() {
    detach_marks();
    return std::exchange(held_, nullptr);
  }
  // Requires: it holds some.
  void attach_marks() { recorder_.set_marks(&held_->marks); }
  void detach_marks() { recorder_.set_marks(nullptr); }

  explicit operator bool() const { return held_ != nullptr; }
  [[nodiscard]] Held* operator->() const { return held_.get(); }

 private:
  Recorder& recorder_;
  std::unique_ptr<Held> held_;
};

}  // namespace sluice::train
