// progress_line: shows the progress of a slow operation: one redrawn line on a terminal, otherwise a log line every few
// seconds. Without a terminal, operations shorter than that interval log nothing. Threads: one at a time.
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

  // May be called at any rate; `text` is called only if its result is shown.
  void show(const std::function<std::string()>& text);

 private:
  Clock clock_;
  bool is_on_terminal_;
  Nanoseconds shown_at_;
};

}  // namespace sluice
