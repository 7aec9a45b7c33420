// worker_files: reads the records that parameter-server workers wrote about themselves (folder workers/ of the server's
// run directory or of their own), split by starts. A start is matched to a worker of a run by machine and process,
// which the server's records also name. Never throws; problems are returned as sentences.
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
  std::string where;  // machine and process
  nlohmann::ordered_json line;
  std::int64_t pushes = 0;
  RecordSums sums;
};

struct WorkerFiles {
  std::filesystem::path dir;
  std::vector<WorkerStart> starts;
  LineDamage damage;
  std::vector<std::string> problems;  // one sentence per unreadable file
};

[[nodiscard]] bool holds_workers(const std::filesystem::path& run_dir);
[[nodiscard]] bool is_of_workers_alone(const std::filesystem::path& run_dir);

[[nodiscard]] WorkerFiles read_worker_files(const std::filesystem::path& run_dir);

}  // namespace sluice::report
