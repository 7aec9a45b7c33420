// record_lines: a file of records, metrics.jsonl or a worker's, line by line, whatever became of who wrote it: a line
// that is no record is counted and left out, one that is torn at the end of the file is only noted. Memory does not
// grow with the lines. Of a file with very many steps a reader may ask for the head of most step lines only (step,
// loss, samples, learning rate, time, top-1, top-5), which come first in a line, and the rate of samples that follows
// from it: a tenth of the time.
// Threads: a pure function. Errors: DataError where the file cannot be read, OutOfMemoryError if no more can be opened.
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

// every: the first of so many lines of steps in a row is taken whole, of the others the head; 1: all are whole.
LineDamage read_records(const std::filesystem::path& file, const TakeRecord& take, std::int64_t every = 1);

// `every` for a file of this many bytes, so that at most about 50 MB of it are parsed whole.
[[nodiscard]] std::int64_t whole_lines_of(const std::filesystem::path& file);

// The fields of a step line before "load_ms", and samples_per_s; `discarded` where the line does not begin as our own
// do.
[[nodiscard]] nlohmann::ordered_json head_of_step(const std::string& line);

// Of a path; not_found where there is nothing. DataError where nobody can tell.
[[nodiscard]] std::filesystem::file_status status_of(const std::filesystem::path& path);

}  // namespace sluice::report
