#include <filesystem>
#include <memory>

#include "app/commands.h"
#include "app/commands/report_html.h"
#include "app/commands/report_runs.h"
#include "app/options.h"
#include "core/log.h"
#include "report/run_report.h"

namespace sluice::app {
namespace {

struct ReportArguments {
  std::vector<std::filesystem::path> run_dirs;
  OutputArguments output;
  HtmlArguments html;
};

void print_report(const ReportArguments& arguments) {
  const auto [runs, left_out, is_one] =
      read_runs(arguments.run_dirs, [](const auto& dir) { return report::read_report(dir); });
  for (const std::string& why : left_out) log_warning("left out: ", why);
  nlohmann::ordered_json json = report::json_of(runs);
  json["skipped"] = left_out;
  arguments.output.print(json, is_one ? runs.front().text() : report::comparison(runs));
}

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
                   "Directories of runs (also unfinished ones), and of workers with a directory of their own")
      ->required()
      ->check(not_empty);
  arguments->output.add_to(*command);
  auto* html =
      command
          ->add_option("--html", arguments->html.file,
                       "Write one HTML page with plots, which needs no network, instead of the text; - prints it")
          ->type_name("FILE")
          ->check(not_empty);
  command
      ->add_flag("--watch", arguments->html.watch,
                 "Rewrite the page every few seconds until the runs end or disappear, nothing is recorded for 10 "
                 "minutes, or Ctrl-C; the browser reloads it")
      ->needs(html);
  command->callback([arguments] { run_report_command(*arguments); });
}

}  // namespace sluice::app
