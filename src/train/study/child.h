// child: runs this program in a child process, so that its failure does not end this one. The child ignores our
// launcher and ends with us. Threads: one at a time. Errors: PeerError if no process can start, OutOfMemoryError
// without a pipe, InterruptedError (after the child's end) on a stop signal.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"

namespace sluice::train {

struct ChildEnd {
  int exit_code = 0;       // docs/reference/exit_codes.md, also after a signal
  bool timed_out = false;  // killed at its limit
  std::string last_words;  // last line of its standard error without date and level, or the signal that ended it
};

// words: arguments of the program. Discards its standard output. limit_s: the child is killed after it.
[[nodiscard]] ChildEnd run_child(const std::vector<std::string>& words, double limit_s);

// Trains with this configuration, which it writes beside the run directory.
[[nodiscard]] ChildEnd train_in_child(const config::Config& config, const std::filesystem::path& run_dir,
                                      double limit_s);

}  // namespace sluice::train
