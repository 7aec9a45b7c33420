// run_report: reports on finished or running runs from their directories: one in full or several side by side. Values
// that a run did not record are "-" in tables and null in JSON. Errors: those of read_run_log(); an unreadable
// config.toml is only noted.
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
  std::optional<config::Config> config;  // nullopt if config.toml is missing or invalid for this version
  std::string config_problem;
  // Records of the parameter-server workers themselves, and problems with reading them.
  OwnRecordsOfAll own_records = {};
  LineDamage worker_damage = {};
  std::vector<std::string> worker_problems = {};

  // The run as one object: what ran, outcome, rates, means, evaluations, counts, advice (docs/how-to/report.md).
  [[nodiscard]] nlohmann::ordered_json json() const;
  [[nodiscard]] std::string text() const;
};

[[nodiscard]] RunReport read_report(const std::filesystem::path& run_dir, const TakeRecord& also = {});

// Adds the workers' own records to each run. Returns the directories without records for these runs.
std::vector<std::filesystem::path> add_worker_files(std::span<RunReport> runs, std::span<const WorkerFiles> files);

// Sentences about plan changes, incomplete or damaged records, and unreadable files.
[[nodiscard]] std::vector<std::string> record_notes(const RunReport& run);

// {"runs": [...]}; each has "speedup", its samples per second relative to the first.
[[nodiscard]] nlohmann::ordered_json json_of(std::span<const RunReport> runs);

[[nodiscard]] std::string comparison(std::span<const RunReport> runs);

}  // namespace sluice::report
