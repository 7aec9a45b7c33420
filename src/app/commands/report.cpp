#include <filesystem>
#include <memory>

#include "app/commands.h"
#include "app/options.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "report/run_report.h"

namespace sluice::app {
namespace {

struct ReportArguments {
  std::vector<std::filesystem::path> run_dirs;
  OutputArguments output;
};

// Of several directories, as `runs/*` gives them, those that are no runs are passed over and named.
void run_report_command(const ReportArguments& arguments) {
  std::vector<report::RunReport> runs;
  std::vector<Error> refusals;
  for (const auto& dir : arguments.run_dirs) {
    try {
      runs.push_back(report::read_report(dir));
    } catch (const Error& error) {
      refusals.push_back(error);
    }
  }
  if (runs.empty()) {
    if (refusals.size() == 1) throw refusals.front();
    throw Error(refusals.front().exit_code(),
                concat("none of the ", refusals.size(),
                       " paths is a run that can be read; the first: ", refusals.front().what()));
  }
  nlohmann::ordered_json skipped = nlohmann::ordered_json::array();
  for (const Error& refusal : refusals) {
    log_warning(concat("left out: ", refusal.what()));
    skipped.push_back(refusal.what());
  }
  nlohmann::ordered_json json = report::json_of(runs);
  json["skipped"] = skipped;
  const bool is_one = arguments.run_dirs.size() == 1;
  arguments.output.print(json, is_one ? runs.front().text() : report::comparison(runs));
}

}  // namespace

void add_report(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("report", "Print a run's plan, times, evaluations and advice, or several runs side by side");
  const auto arguments = std::make_shared<ReportArguments>();
  command->add_option("RUN_DIR", arguments->run_dirs, "Directories of runs, also of one that still goes on")
      ->required()
      ->check(not_empty);
  arguments->output.add_to(*command);
  command->callback([arguments] { run_report_command(*arguments); });
}

}  // namespace sluice::app
