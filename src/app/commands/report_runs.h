// report_runs: the runs of several directories, as `runs/*` gives them: those that are no runs are passed over and
// named, and what workers have written into directories of their own is added to the runs that they worked for. Errors:
// where no directory is a run that can be read.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "report/run_report.h"

namespace sluice::app {

struct ReportRuns {
  std::vector<report::RunReport> runs;
  std::vector<std::string> left_out;  // a sentence each
  bool is_one = false;                // run, maybe with what its workers have written elsewhere
};

using ReadReport = std::function<report::RunReport(const std::filesystem::path&)>;

[[nodiscard]] ReportRuns read_runs(const std::vector<std::filesystem::path>& dirs, const ReadReport& read);

}  // namespace sluice::app
