// run_page: runs as the one object that a page draws: for each what `report --json` says, its history, and what else
// lies in its directory. Not here: the page (page.h). Errors: those of read_report() for the runs; what else cannot be
// read is a sentence in the object.
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
  std::vector<std::string> left_out;  // why directories are not in it
  int refresh_s = 0;
};

// Of the runs that can be read, at least one. Short names tell the runs apart.
[[nodiscard]] nlohmann::ordered_json page_data(std::span<const PageRun> runs, const PageNotes& notes);

[[nodiscard]] std::string page_title(std::span<const PageRun> runs);

}  // namespace sluice::report
