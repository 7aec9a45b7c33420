#include <memory>
#include <string>

#include "app/commands.h"
#include "app/options.h"
#include "core/error.h"
#include "report/compare_runs.h"

namespace sluice::app {
namespace {

struct CompareArguments {
  std::string a, b;
  OutputArguments output;
};

void run_compare_command(const CompareArguments& arguments) {
  const report::RunComparison comparison = report::compare_runs(arguments.a, arguments.b);
  arguments.output.print(report::to_json(comparison), report::describe(comparison));
  if (comparison.first) throw CLI::RuntimeError(static_cast<int>(ExitCode::kDifferent));
}

}  // namespace

void add_compare(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "compare",
      "Find the first step, and with log.digest_layers the layer, in which two runs differ. Exit code 0: "
      "all digests are equal; 1: they differ");
  const auto arguments = std::make_shared<CompareArguments>();
  command->add_option("RUN_A", arguments->a, "A run directory")->required()->check(not_empty);
  command->add_option("RUN_B", arguments->b, "Another run directory")->required()->check(not_empty);
  arguments->output.add_to(*command);
  command->callback([arguments] { run_compare_command(*arguments); });
}

}  // namespace sluice::app
