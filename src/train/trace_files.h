// trace_files: a file of each process of a run, all written by rank 0, so that no disk need be shared. Not here: what
// is in them (step_trace.h, torch_profile.h). Threads: one. Errors: those of the communicator. A disk that is full, or
// a process that has no text, costs the files and gives a warning.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "comm/communicator.h"

namespace sluice::train {

using TraceFile = std::function<std::filesystem::path(int rank)>;

// In every process, with its own text; it is compressed where the file ends in .gz. others: of all processes; null:
// there are none. what: "trace of 3 steps", for the log.
void write_trace_files(const comm::Communicator* others, const std::string& own, const TraceFile& file,
                       const std::string& what);

}  // namespace sluice::train
