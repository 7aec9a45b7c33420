// record_lines: reads a file of records (metrics.jsonl or a worker's) line by line. Unreadable lines are counted and
// skipped; an incomplete last line is only noted. Memory does not grow with the lines.
// The head of a step line (step, loss, samples, learning rate, time, top-1, top-5, samples_per_s) takes a tenth of the
// time of the whole line.
// Errors: DataError if the file cannot be read, OutOfMemoryError if the process can open no more files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice::report {

struct LineDamage {
  std::int64_t unreadable_lines = 0;  // without an incomplete last line
  bool is_torn = false;
};

using TakeRecord = std::function<void(const nlohmann::ordered_json& line, const std::string& event)>;

// every: of this many consecutive step lines, the first is parsed whole and the others by their head.
LineDamage read_records(const std::filesystem::path& file, const TakeRecord& take, std::int64_t every = 1);

// `every` for a file of this size, so that at most about 50 MB are parsed whole.
[[nodiscard]] std::int64_t whole_lines_of(const std::filesystem::path& file);

// The fields of a step line before "load_ms", and samples_per_s; `discarded` if the line has another form.
[[nodiscard]] nlohmann::ordered_json head_of_step(const std::string& line);

// Status of a path; not_found if it does not exist. DataError if the status is unknown.
[[nodiscard]] std::filesystem::file_status status_of(const std::filesystem::path& path);

}  // namespace sluice::report
