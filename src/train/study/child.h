// child: this program as a process of its own, so that what happens to it (no memory, a hang) does not end this one.
// It is alone, whatever launcher started us, and ends with us. Threads: one at a time, and that one stays until the
// child has ended. Errors: PeerError where no process can be started, OutOfMemoryError where no pipe can be made,
// InterruptedError where a signal asked us to stop (stop_signal.h), after the child has ended.
#pragma once

#include <string>
#include <vector>

namespace sluice::train {

struct ChildEnd {
  int exit_code = 0;       // docs/errors.md, also where a signal ended it
  bool timed_out = false;  // it was ended because its time was over
  std::string last_words;  // the last line of its standard error without date and level, or which signal ended it
};

// words: what stands behind the program's name. Its standard output is discarded. limit_s: after this it is killed.
[[nodiscard]] ChildEnd run_child(const std::vector<std::string>& words, double limit_s);

}  // namespace sluice::train
