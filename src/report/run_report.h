// report: runs that are over, or still going on, told from their directories: one in full, several side by side.
// Not here: reading metrics.jsonl (run_log.h), what a run tells while it runs (reporter.h).
// What a run did not record is "-" in tables and null in JSON.
// Threads: pure but for read_report. Errors: those of read_run_log; a config.toml that cannot be read is only noted.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "config/config.h"
#include "report/run_log.h"
#include "report/worker_files.h"
#include "report/worker_table.h"

namespace sluice::report {

struct RunReport {
  RunLog log;
  std::optional<config::Config> config;  // nothing when config.toml is missing or not for this version
  std::string config_problem;            // why not, as a sentence
  // What the workers of its parameter server have told of themselves, and what of that cannot be read.
  OwnRecordsOfAll own_records = {};
  LineDamage worker_damage = {};
  std::vector<std::string> worker_problems = {};

  // The run as one object: what ran, its outcome, rates, means, evaluations, counts, advice (docs/report.md).
  [[nodiscard]] nlohmann::ordered_json json() const;
  [[nodiscard]] std::string text() const;  // lines for people, without control characters
};

// also: as in read_run_log().
[[nodiscard]] RunReport read_report(const std::filesystem::path& run_dir, const TakeRecord& also = {});

// Gives each run what its workers have told, wherever that is. Returns the directories that hold nothing of these runs.
std::vector<std::filesystem::path> add_worker_files(std::span<RunReport> runs, std::span<const WorkerFiles> files);

// {"runs": [...]}; each has "speedup", its samples per second against those of the first.
[[nodiscard]] nlohmann::ordered_json json_of(std::span<const RunReport> runs);

// A row a run, with the speed-up against the first.
[[nodiscard]] std::string comparison(std::span<const RunReport> runs);

}  // namespace sluice::report
