// worker_table: tables of parameter-server workers, from the server's records and from their own.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>

#include "report/worker_files.h"
#include "report/worker_totals.h"

namespace sluice::report {

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

[[nodiscard]] std::string workers_text(const nlohmann::ordered_json& workers, bool is_virtual);

}  // namespace sluice::report
