// worker_totals: what the lines `push` and `worker` in the records of a parameter server add up to, a value a worker.
// Not here: what a worker tells of itself (worker_files.h). Units: as the fields are named. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "report/record_fields.h"

namespace sluice::report {

struct WorkerTotals {
  // Over the pushes that have the number.
  struct Mean {
    double sum = 0;
    std::int64_t count = 0;
  };
  // The last time that it failed or was given up.
  struct Trouble {
    std::optional<std::int64_t> step;
    std::string what, why;
  };

  std::int64_t pushes = 0;
  std::int64_t examples = 0;
  std::map<std::string, Mean, std::less<>> means;  // compute_s, idle_s, send_s, sleep_s, staleness
  std::optional<std::int64_t> most_stale;
  std::map<std::string, std::int64_t, std::less<>> events;  // joined, left, failed, lost; how often
  // By where it has joined from, machine and process: what these processes called themselves; empty: not known.
  std::map<std::string, std::set<std::string>, std::less<>> processes;
  std::optional<Trouble> trouble;

  [[nodiscard]] std::optional<double> mean(std::string_view name) const;
  [[nodiscard]] std::int64_t count(std::string_view what) const;
  // Whether that process has. In containers machine and process may be those of others before it.
  [[nodiscard]] bool has_joined(std::string_view where, const std::string& process_id) const;
};

// [number]. A line that names no worker is left out.
using WorkersTotals = std::map<int, WorkerTotals>;
void add_push(WorkersTotals& workers, const nlohmann::ordered_json& line);
void add_worker_event(WorkersTotals& workers, const nlohmann::ordered_json& line);

// As a line names it; nothing where there can be no such worker.
[[nodiscard]] std::optional<int> worker_in(const nlohmann::ordered_json& line);

}  // namespace sluice::report
