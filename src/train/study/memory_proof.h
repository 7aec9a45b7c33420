// memory_proof: the largest batch that fits by tune/memory_table.h, run really under device.memory_limit for two steps
// in a child process (child.h), and then a larger one, so that the boundary is seen from both sides. Not here: the
// table; how long steps take (measured_plan.h). Threads: one. Errors: StorageError where there is no room for its
// files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "tune/memory_table.h"

namespace sluice::train {

enum class ProofEnd : std::uint8_t {
  kRan,          // to its end
  kOutOfMemory,  // it ended with that exit code
  kFailed,       // it ended otherwise
  kNotRun,
};
[[nodiscard]] const char* to_word(ProofEnd end);  // "ran", "out of memory", "failed", "not run"

struct ProofRun {
  tune::MemoryCell cell;
  ProofEnd end = ProofEnd::kNotRun;
  std::string why;               // it was not run, or ended as it did
  std::uint64_t peak_bytes = 0;  // of the device that held most; 0: not known
};

// The cell's batch first, of several processes the share of one. Where that ran, the next larger one, and as long as
// they run (a bound is not what a run needs) some that are expected to need 1.1, 1.2, .. 1.5 times the limit. Where it
// ran out of memory, those that should need no more than 95, 90, .. 50 % of the limit, until one runs.
// config: with the question's limit as device.memory_limit. budget_s: of all runs; what has no time is not run, nor
// what this machine's memory is too small for.
[[nodiscard]] std::vector<ProofRun> prove_largest(const config::Config& config, const tune::MemoryQuestion& question,
                                                  const tune::MemoryCell& largest, double budget_s);

}  // namespace sluice::train
