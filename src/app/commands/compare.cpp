#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/options.h"
#include "config/config.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "report/compare_runs.h"
#include "train/setup/setting_differences.h"

namespace sluice::app {
namespace {

struct CompareArguments {
  std::string a, b;
  OutputArguments output;
};

std::vector<train::Difference> find_other_settings(const CompareArguments& arguments) {
  try {
    const auto a = config::load(std::filesystem::path(arguments.a) / "config.toml");
    const auto b = config::load(std::filesystem::path(arguments.b) / "config.toml");
    return train::find_learned_differences(b, a);
  } catch (const Error& error) {
    log_warning("the settings of the runs are not compared: ", error.what());
    return {};
  }
}

void run_compare_command(const CompareArguments& arguments) {
  const report::RunComparison comparison = report::compare_runs(arguments.a, arguments.b);
  std::string text = report::describe(comparison);
  nlohmann::ordered_json json = report::to_json(comparison);
  if (comparison.first) {
    json["settings"] = nlohmann::ordered_json::object();  // by key: the values of RUN_A and RUN_B
    for (const auto& [key, of_b, of_a] : find_other_settings(arguments)) {
      json["settings"][key] = {of_a, of_b};
      text += concat("\n", key, ": ", of_a, " in the first run, ", of_b, " in the second");
    }
  }
  arguments.output.print(json, text);
  if (comparison.first) throw CLI::RuntimeError(static_cast<int>(ExitCode::kDifferent));
}

}  // namespace

void add_compare(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "compare",
      "Find the first step, and with log.digest_layers the layer, in which two runs differ, and the settings that "
      "can be the reason. Exit code 0: all digests are equal; 1: they differ");
  const auto arguments = std::make_shared<CompareArguments>();
  command->add_option("RUN_A", arguments->a, "A run directory")->required()->check(not_empty);
  command->add_option("RUN_B", arguments->b, "Another run directory")->required()->check(not_empty);
  arguments->output.add_to(*command);
  command->callback([arguments] { run_compare_command(*arguments); });
}

}  // namespace sluice::app
