// worker_totals: totals per worker from the lines `push` and `worker` in a parameter server's records.
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
  struct Mean {
    double sum = 0;
    std::int64_t count = 0;
  };
  struct Trouble {
    std::optional<std::int64_t> step;
    std::string what, why;
  };

  std::int64_t pushes = 0;
  std::int64_t examples = 0;
  std::map<std::string, Mean, std::less<>> means;  // compute_s, idle_s, send_s, sleep_s, staleness
  std::optional<std::int64_t> most_stale;
  std::map<std::string, std::int64_t, std::less<>> events;  // counts of joined, left, failed and lost
  // Process ids by machine and process; empty if unknown.
  std::map<std::string, std::set<std::string>, std::less<>> processes;
  std::optional<Trouble> trouble;

  [[nodiscard]] std::optional<double> mean(std::string_view name) const;
  [[nodiscard]] std::int64_t count(std::string_view what) const;
  // True if that process joined. The process id distinguishes containers with the same machine and process numbers.
  [[nodiscard]] bool has_joined(std::string_view where, const std::string& process_id) const;
};

// By worker number. Lines without a worker are skipped.
using WorkersTotals = std::map<int, WorkerTotals>;
void add_push(WorkersTotals& workers, const nlohmann::ordered_json& line);
void add_worker_event(WorkersTotals& workers, const nlohmann::ordered_json& line);

[[nodiscard]] std::optional<int> worker_in(const nlohmann::ordered_json& line);

}  // namespace sluice::report
