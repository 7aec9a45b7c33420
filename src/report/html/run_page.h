// run_page: the JSON object that a page draws. Errors: those of read_report(); problems with further files of the run's
// directory become sentences in the object.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "report/html/history.h"
#include "report/run_report.h"

namespace sluice::report {

struct PageRun {
  RunReport report;
  History history;
};

[[nodiscard]] PageRun read_page_run(const std::filesystem::path& run_dir);

struct PageNotes {
  std::vector<std::string> left_out;  // reasons for omitted directories
  int refresh_s = 0;
};

// Requires: at least one run. Runs get short, distinct names.
[[nodiscard]] nlohmann::ordered_json page_data(std::span<const PageRun> runs, const PageNotes& notes);

[[nodiscard]] std::string page_title(std::span<const PageRun> runs);

}  // namespace sluice::report
