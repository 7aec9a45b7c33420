// worker_table: the workers of a parameter server as tables: what the server knows of each, and where its time went as
// far as it has told that itself. Not here: reading (worker_totals.h, worker_files.h). Pure functions of the objects
// that `report --json` prints.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>

#include "report/worker_files.h"
#include "report/worker_totals.h"

namespace sluice::report {

// What one worker of a run has told of itself, over all its starts.
struct OwnRecords {
  std::int64_t starts = 0;
  std::int64_t pushes = 0;
  std::set<std::string> processes;  // machine and process of each
  RecordSums sums;
};
using OwnRecordsOfAll = std::map<int, OwnRecords>;  // [number]

// The starts that these workers have joined with; one that lies in several directories counts once, as where it has
// most pushes: elsewhere it is an older copy.
[[nodiscard]] OwnRecordsOfAll own_records_of(const WorkersTotals& workers, std::span<const WorkerFiles> files);

// A list, an object a worker.
[[nodiscard]] nlohmann::ordered_json workers_json(const WorkersTotals& workers, const OwnRecordsOfAll& own);

// From that list. is_virtual: its seconds are those of the virtual clock.
[[nodiscard]] std::string workers_text(const nlohmann::ordered_json& workers, bool is_virtual);

}  // namespace sluice::report
