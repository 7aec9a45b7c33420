// record_lines: a file of records, metrics.jsonl or a worker's, line by line, whatever became of who wrote it: a line
// that is no record is counted and left out, one that is torn at the end of the file is only noted. Memory does not
// grow with the lines. Threads: a pure function. Errors: DataError where the file cannot be read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice::report {

struct LineDamage {
  std::int64_t unreadable_lines = 0;  // besides a torn last one
  bool is_torn = false;               // the last line ends in the middle
};

using TakeRecord = std::function<void(const nlohmann::ordered_json& line, const std::string& event)>;

LineDamage read_records(const std::filesystem::path& file, const TakeRecord& take);

// Of a path; not_found where there is nothing. DataError where nobody can tell.
[[nodiscard]] std::filesystem::file_status status_of(const std::filesystem::path& path);

}  // namespace sluice::report
