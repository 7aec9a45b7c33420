// child: this program as a process of its own, so that what happens to it (no memory, a hang) does not end this one.
// It is alone, whatever launcher started us. Threads: one at a time. Errors: PeerError where no process can be started.
#pragma once

#include <string>
#include <vector>

namespace sluice::train {

struct ChildEnd {
  int exit_code = 0;       // 128 and the signal where one ended it
  bool timed_out = false;  // it was ended because its time was over
  std::string last_words;  // the last line of its standard error
};

// words: what stands behind the program's name. Its standard output is discarded. limit_s: after this it is killed.
[[nodiscard]] ChildEnd run_child(const std::vector<std::string>& words, double limit_s);

}  // namespace sluice::train
