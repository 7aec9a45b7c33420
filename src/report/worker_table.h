// worker_table: tables of the parameter-server workers: the server's records of each, and the time parts from their own
// records. worker_totals.h and worker_files.h read the records.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>

#include "report/worker_files.h"
#include "report/worker_totals.h"

namespace sluice::report {

// Own records of one worker, over all its starts.
struct OwnRecords {
  std::int64_t starts = 0;
  std::int64_t pushes = 0;
  std::set<std::string> processes;
  RecordSums sums;
};
using OwnRecordsOfAll = std::map<int, OwnRecords>;  // by worker number

// The starts with which these workers joined. If a start is in several directories, only the copy with most pushes
// counts, because the others are older.
[[nodiscard]] OwnRecordsOfAll own_records_of(const WorkersTotals& workers, std::span<const WorkerFiles> files);

[[nodiscard]] nlohmann::ordered_json workers_json(const WorkersTotals& workers, const OwnRecordsOfAll& own);

// Formats that list. is_virtual: seconds are those of the virtual clock.
[[nodiscard]] std::string workers_text(const nlohmann::ordered_json& workers, bool is_virtual);

}  // namespace sluice::report
