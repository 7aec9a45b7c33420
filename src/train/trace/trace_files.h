// trace_files: a trace file of each process of a run, all written by rank 0, so that no disk need be shared. Not here:
// what is in them (step_trace.h, torch_steps.h). Threads: any, one at a time. Errors: those of the communicator.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace sluice::train {

using TraceFile = std::function<std::filesystem::path(int rank)>;

// FILE of `profile --trace`: with several processes the rank stands before its ending.
[[nodiscard]] std::filesystem::path trace_file_beside(const std::filesystem::path& file, int rank, int processes);

// Compressed where `file` ends in .gz. No text stays none.
[[nodiscard]] std::string packed_text(std::string text, const std::filesystem::path& file);

// In every process, with its own text: those of all by rank in rank 0, nothing in the others. others: of all processes;
// null: there are none.
[[nodiscard]] std::vector<std::string> gather_trace(const comm::Communicator* others, std::string text);

// In rank 0: one file for each text. what: "trace of 3 steps", for the log. False where nothing was written: a disk
// that is full, or a process that has no text, gives a warning.
bool write_gathered(const std::vector<std::string>& texts, const TraceFile& file, const std::string& what);

// there: by rank. Removes those of ranks that this run does not have: of an earlier run of more processes.
void remove_traces_beyond(int processes, const std::map<int, std::filesystem::path>& there);

}  // namespace sluice::train
