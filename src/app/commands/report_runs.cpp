#include "app/commands/report_runs.h"

#include <algorithm>
#include <iterator>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "report/worker_files.h"

namespace sluice::app {
namespace {

void require_runs(const ReportRuns& all, const std::vector<Error>& refusals) {
  if (!all.runs.empty()) return;
  if (refusals.size() == 1) throw Error(refusals.front());
  throw Error(refusals.front().exit_code(), concat("none of the ", refusals.size(),
                                                   " paths is a readable run; the first: ", refusals.front().what()));
}

ConfigError of_no_run(const std::filesystem::path& dir) {
  return ConfigError(printable(dir.string()), " has only records of workers, and not of these runs; also give ",
                     "the run directory of their parameter server");
}

}  // namespace

ReportRuns read_runs(const std::vector<std::filesystem::path>& dirs, const ReadReport& read) {
  ReportRuns all;
  std::vector<Error> refusals;
  std::vector<report::WorkerFiles> of_workers;
  for (const auto& dir : dirs) {
    if (report::holds_workers(dir)) of_workers.push_back(report::read_worker_files(dir));
    if (report::is_of_workers_alone(dir)) continue;
    try {
      all.runs.push_back(read(dir));
    } catch (const Error& error) {
      refusals.push_back(error);
    }
  }
  for (const auto& dir : report::add_worker_files(all.runs, of_workers)) {
    if (report::is_of_workers_alone(dir)) refusals.push_back(of_no_run(dir));
  }
  require_runs(all, refusals);
  for (const Error& refusal : refusals) all.left_out.emplace_back(refusal.what());
  all.is_one = std::ranges::count_if(dirs, report::is_of_workers_alone) + 1 == std::ssize(dirs);
  return all;
}

}  // namespace sluice::app
