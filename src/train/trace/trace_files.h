// trace_files: one trace file per process, all written by rank 0. Threads: any, one at a time. Errors: the
// communicator's.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace sluice::train {

using TraceFile = std::function<std::filesystem::path(int rank)>;

// FILE of `profile --trace`; with several processes the rank precedes the file's ending.
[[nodiscard]] std::filesystem::path trace_file_beside(const std::filesystem::path& file, int rank, int processes);

[[nodiscard]] std::string packed_text(std::string text, const std::filesystem::path& file);

// All processes call it together. Returns all texts by rank in rank 0. others: connects all processes; may be null.
[[nodiscard]] std::vector<std::string> gather_trace(const comm::Communicator* others, std::string text);

// Rank 0 writes one file per text. what: "trace of 3 steps". False, with a warning, if nothing was written.
bool write_gathered(const std::vector<std::string>& texts, const TraceFile& file, const std::string& what);

// Removes the files that an earlier run with more processes left. there: existing files by rank.
void remove_traces_beyond(int processes, const std::map<int, std::filesystem::path>& there);

}  // namespace sluice::train
