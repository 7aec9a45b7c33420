// progress_line: the progress of a slow operation, redrawn on a terminal, else logged every few seconds. One thread.
#pragma once

#include <functional>
#include <string>

#include "core/clock.h"

namespace sluice {

class ProgressLine {
 public:
  using Clock = std::function<Nanoseconds()>;

  explicit ProgressLine(Clock clock = now_ns);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const std::function<std::string()>& text);

 private:
  Clock clock_;
  bool is_on_terminal_;
  Nanoseconds shown_at_;
};

}  // namespace sluice
