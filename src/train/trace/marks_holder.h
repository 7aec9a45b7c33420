// marks_holder: owns a recorder's action marks (core/action_marks.h) and detaches them before their end. After an error
// it leaks them, because a leftover thread may still mark actions. Threads: one.
#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "core/recorder.h"

namespace sluice::train {

// Held: has a member `marks`.
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

  void hold(std::unique_ptr<Held> held) {
    detach_marks();
    held_ = std::move(held);
  }
  [[nodiscard]] std::unique_ptr<Held> take() {
    detach_marks();
    return std::exchange(held_, nullptr);
  }
  // Requires: it holds marks.
  void attach_marks() { recorder_.set_marks(&held_->marks); }
  void detach_marks() { recorder_.set_marks(nullptr); }

  explicit operator bool() const { return held_ != nullptr; }
  [[nodiscard]] Held* operator->() const { return held_.get(); }

 private:
  Recorder& recorder_;
  std::unique_ptr<Held> held_;
};

}  // namespace sluice::train
