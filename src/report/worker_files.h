// worker_files: what the workers of a parameter server have told of themselves in the folder workers/ of a run
// directory, their server's or their own, read back and told by starts: the server's records name the machine and
// process of each worker that has joined, and so does a start, whatever directory it is in. Not here: writing them
// (worker_writer.h). Errors: none; what cannot be read is said.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/record_lines.h"
#include "report/record_sums.h"

namespace sluice::report {

struct WorkerStart {
  int worker = 0;
  std::string where;            // its machine and process
  nlohmann::ordered_json line;  // `start`
  std::int64_t pushes = 0;
  RecordSums sums;  // of its steps
};

struct WorkerFiles {
  std::filesystem::path dir;  // of the run
  std::vector<WorkerStart> starts;
  LineDamage damage;                  // of all files
  std::vector<std::string> problems;  // a sentence for each file that cannot be read
};

// Whether workers have written into this directory.
[[nodiscard]] bool holds_workers(const std::filesystem::path& run_dir);
// They alone, where they were given a directory of their own.
[[nodiscard]] bool is_of_workers_alone(const std::filesystem::path& run_dir);

[[nodiscard]] WorkerFiles read_worker_files(const std::filesystem::path& run_dir);

}  // namespace sluice::report
