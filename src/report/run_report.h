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

namespace sluice::report {

struct RunReport {
  RunLog log;
  std::optional<config::Config> config;  // nothing when config.toml is missing or not for this version
  std::string config_problem;            // why not, as a sentence

  // The run as one object: what ran, its outcome, rates, means, evaluations, counts, advice (docs/report.md).
  [[nodiscard]] nlohmann::ordered_json json() const;
  [[nodiscard]] std::string text() const;  // lines for people, without control characters
};

[[nodiscard]] RunReport read_report(const std::filesystem::path& run_dir);

// {"runs": [...]}; each has "speedup", its samples per second against those of the first.
[[nodiscard]] nlohmann::ordered_json json_of(std::span<const RunReport> runs);

// A row a run, with the speed-up against the first.
[[nodiscard]] std::string comparison(std::span<const RunReport> runs);

}  // namespace sluice::report
