// progress_line: how far something slow has come, for people: a line that is redrawn on a terminal; elsewhere a line of
// the log every few seconds. What is over sooner says nothing there. Threads: one at a time.
#pragma once

#include <functional>
#include <string>

#include "core/clock.h"

namespace sluice {

class ProgressLine {
 public:
  using Clock = std::function<Nanoseconds()>;

  explicit ProgressLine(Clock clock = now_ns);
  ~ProgressLine();  // takes the line off the terminal
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // As often as one likes; `text` is asked for only when it is shown.
  void show(const std::function<std::string()>& text);

 private:
  Clock clock_;
  bool is_on_terminal_;
  Nanoseconds shown_at_;
};

}  // namespace sluice
