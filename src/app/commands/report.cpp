#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>

#include "app/commands.h"
#include "app/commands/report_html.h"
#include "app/options.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "report/run_report.h"

namespace sluice::app {
namespace {

struct ReportArguments {
  std::vector<std::filesystem::path> run_dirs;
  OutputArguments output;
  HtmlArguments html;
};

struct Read {
  std::vector<report::RunReport> runs;
  std::vector<Error> refusals;
  bool is_one = false;  // run, maybe with what its workers have written elsewhere
};

Read read_all(const std::vector<std::filesystem::path>& dirs) {
  Read all;
  std::vector<report::WorkerFiles> of_workers;
  for (const auto& dir : dirs) {
    if (report::holds_workers(dir)) of_workers.push_back(report::read_worker_files(dir));
    if (report::is_of_workers_alone(dir)) continue;
    try {
      all.runs.push_back(report::read_report(dir));
    } catch (const Error& error) {
      all.refusals.push_back(error);
    }
  }
  all.is_one = std::ranges::count_if(dirs, report::is_of_workers_alone) + 1 == std::ssize(dirs);
  for (const auto& dir : report::add_worker_files(all.runs, of_workers)) {
    if (!report::is_of_workers_alone(dir)) continue;
    all.refusals.push_back(
        ConfigError(concat(printable(dir.string()), " holds records of workers alone, and of none of these runs; give ",
                           "the run directory of their parameter server, too")));
  }
  return all;
}

// Of several directories, as `runs/*` gives them, those that are no runs are passed over and named.
void print_report(const ReportArguments& arguments) {
  const auto [runs, refusals, is_one] = read_all(arguments.run_dirs);
  if (runs.empty()) {
    if (refusals.size() == 1) throw Error(refusals.front());
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
  arguments.output.print(json, is_one ? runs.front().text() : report::comparison(runs));
}

// A page alone, or with --json both.
void run_report_command(const ReportArguments& arguments) {
  check_html_output(arguments.html, arguments.run_dirs, arguments.output.json);
  if (!arguments.html.file.empty()) write_html(arguments.html, arguments.run_dirs);
  if (arguments.html.file.empty() || arguments.output.json) print_report(arguments);
}

}  // namespace

void add_report(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("report", "Print a run's plan, times, evaluations and advice, or several runs side by side");
  const auto arguments = std::make_shared<ReportArguments>();
  command
      ->add_option("RUN_DIR", arguments->run_dirs,
                   "Directories of runs, also of one that still goes on, and of workers that were given their own")
      ->required()
      ->check(not_empty);
  arguments->output.add_to(*command);
  auto* html = command
                   ->add_option("--html", arguments->html.file,
                                "Write one page with plots for a browser, which needs no network, instead of the text; "
                                "- prints it")
                   ->type_name("FILE")
                   ->check(not_empty);
  command
      ->add_flag("--watch", arguments->html.watch,
                 "Write the page again every few seconds until the runs end, or Ctrl-C; the browser loads it anew")
      ->needs(html);
  command->callback([arguments] { run_report_command(*arguments); });
}

}  // namespace sluice::app
