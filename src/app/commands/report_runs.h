// report_runs: reads the runs of several directories. Directories without a run are skipped and listed; those of
// parameter-server workers are added to their server's run. Errors: if no directory holds a readable run.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "report/run_report.h"

namespace sluice::app {

struct ReportRuns {
  std::vector<report::RunReport> runs;
  std::vector<std::string> left_out;
  bool is_one = false;  // a single run, possibly with the directories of its workers
};

using ReadReport = std::function<report::RunReport(const std::filesystem::path&)>;

[[nodiscard]] ReportRuns read_runs(const std::vector<std::filesystem::path>& dirs, const ReadReport& read);

}  // namespace sluice::app
