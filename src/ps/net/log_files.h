// log_files: the files of a server's log (push_log.h, shard_log.h). Each file covers the time between two copies of a
// state: updates-V.log begins with the state after update V.
// Threads: one. Errors: StorageError; CheckpointError for damaged files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ps/net/frames.h"
#include "storage/record_log.h"

namespace sluice::ps {

// Returns V of each file in the folder, ascending.
[[nodiscard]] std::vector<std::int64_t> logged_versions(const std::filesystem::path& folder);
[[nodiscard]] std::filesystem::path log_file(const std::filesystem::path& folder, std::int64_t version);
// Removes the files with begin <= V < end, and the folder if it is then empty. Failures are logged.
void remove_logs(const std::filesystem::path& folder, std::int64_t begin, std::int64_t end);
// Renames the files with begin <= V to unused names that are never read (updates-V.log.replaced, .replaced-2 ...). Call
// it before a run that does not continue these files uses the folder. why: reason for the warning.
void set_logs_aside(const std::filesystem::path& folder, std::int64_t begin, const std::string& why);

// Starts the next file, which appears once `write` has filled it. before: the previous file, synced first; may be null.
[[nodiscard]] std::unique_ptr<storage::RecordLog> begin_log(const std::filesystem::path& folder, std::int64_t version,
                                                            storage::Outlives outlives, storage::RecordLog* before,
                                                            const std::function<void(storage::RecordLog&)>& write);
void append(storage::RecordLog& log, std::uint64_t kind, const Frames& frames);
[[nodiscard]] Frames frames_of(const storage::LogRecord& record);
void warn_of_torn_end(const storage::RecordLogReader& reader);

}  // namespace sluice::ps
