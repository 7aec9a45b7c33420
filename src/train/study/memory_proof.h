// memory_proof: runs the largest batch that fits by tune/memory_table.h, and then larger ones, for two steps each in a
// child process (child.h). Threads: one. Errors: StorageError if its files have no room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "profiler/layer_profile.h"
#include "tune/memory_table.h"

namespace sluice::train {

// The question which batches fit device.memory_limit by this profile. ConfigError with the key or the file.
[[nodiscard]] tune::MemoryQuestion memory_question(const config::Config& config, const profiler::LayerProfile& profile,
                                                   const std::string& file, int processes);

enum class ProofEnd : std::uint8_t {
  kRan,
  kOutOfMemory,  // ended with that exit code
  kFailed,
  kNotRun,
};
[[nodiscard]] const char* to_word(ProofEnd end);

struct ProofRun {
  tune::MemoryCell cell;
  ProofEnd end = ProofEnd::kNotRun;
  std::string why;               // why it was not run or failed
  std::uint64_t peak_bytes = 0;  // of the device with the most; 0: unknown
};

// Runs the cell's batch (one process's share). If it runs: the next larger batch, then those expected to need 1.1 to
// 1.5 times the limit. If memory runs out: batches for 95, 90, .. 50 % of the limit, until one runs. Skips runs beyond
// budget_s or the machine's memory.
[[nodiscard]] std::vector<ProofRun> prove_largest(const config::Config& config, const tune::MemoryQuestion& question,
                                                  const tune::MemoryCell& largest, double budget_s);

}  // namespace sluice::train
