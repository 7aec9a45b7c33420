#include <filesystem>
#include <memory>

#include "app/commands.h"
#include "app/options.h"
#include "train/report.h"

namespace sluice::app {
namespace {

struct ReportArguments {
  std::vector<std::filesystem::path> run_dirs;
  OutputArguments output;
};

void run(const ReportArguments& arguments) {
  std::vector<train::RunReport> runs;
  for (const auto& dir : arguments.run_dirs) runs.push_back(train::read_report(dir));
  arguments.output.print(train::json_of(runs), runs.size() == 1 ? runs.front().text() : train::comparison(runs));
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
  command->callback([arguments] { run(*arguments); });
}

}  // namespace sluice::app
