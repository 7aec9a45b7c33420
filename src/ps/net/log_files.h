// log_files: the files in which a server keeps what it must not forget (push_log.h, shard_log.h). Each is of one time
// between two copies of a state: updates-V.log begins with what is known after update V.
// Threads: one. Errors: StorageError; CheckpointError for files that are damaged.
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

// V of each file in the folder, ascending.
[[nodiscard]] std::vector<std::int64_t> logged_versions(const std::filesystem::path& folder);
[[nodiscard]] std::filesystem::path log_file(const std::filesystem::path& folder, std::int64_t version);
// Those with begin <= V < end, and a folder that is left empty. What cannot be removed is a warning.
void remove_logs(const std::filesystem::path& folder, std::int64_t begin, std::int64_t end);
// Before a run that goes on from something else takes the folder: those with begin <= V stay under names that nobody
// reads, and that are of no file yet (updates-V.log.replaced, .replaced-2 ...). why: what they are, for the warning.
void set_logs_aside(const std::filesystem::path& folder, std::int64_t begin, const std::string& why);

// The next file, which is there once it has all that `write` puts into it. before: the file until now, which then
// outlives what it has to, too; null: there is none.
[[nodiscard]] std::unique_ptr<storage::RecordLog> begin_log(const std::filesystem::path& folder, std::int64_t version,
                                                            storage::Outlives outlives, storage::RecordLog* before,
                                                            const std::function<void(storage::RecordLog&)>& write);
void append(storage::RecordLog& log, std::uint64_t kind, const Frames& frames);
// Views of the record.
[[nodiscard]] Frames frames_of(const storage::LogRecord& record);
// After the last record: of what is left of one that was cut short.
void warn_of_torn_end(const storage::RecordLogReader& reader);

}  // namespace sluice::ps
