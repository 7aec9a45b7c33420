#include <memory>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/commands/tune_batch.h"
#include "app/commands/tune_files.h"
#include "app/commands/tune_report.h"
#include "app/options.h"
#include "app/process.h"
#include "config/config.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "train/study/tuning.h"

namespace sluice::app {
namespace {

struct TuneArguments {
  ConfigArguments config;
  OutputArguments output;
  train::TuneOptions tune;
  BatchArguments batch;
  std::vector<std::string> profiles;
  std::string memory;
  std::string out = "tuned.toml";
};

void run_tune_command(TuneArguments& arguments) {
  arguments.tune.config_file = arguments.config.file;
  for (const std::string& file : arguments.profiles) arguments.tune.profiles.emplace_back(file);
  std::vector<std::filesystem::path> inputs{arguments.config.file};
  inputs.insert(inputs.end(), arguments.tune.profiles.begin(), arguments.tune.profiles.end());
  check_tune_files(arguments.out, inputs, /*measures=*/arguments.profiles.empty());
  arguments.tune.batch = arguments.batch.parse();
  if (!arguments.memory.empty()) arguments.config.sets.push_back(concat("device.memory_limit=", arguments.memory));
  const ConfigText written{arguments.config.file, config::read_config_text(arguments.config.file)};
  const config::Config config = config::parse(written.text, written.file, arguments.config.sets);
  if (!config.replicas.shares.list.empty()) {
    throw ConfigError("replicas.shares has ", counted(config.replicas.shares.list.size(), "share"),
                      ", but sluice tune chooses the number of replicas; set it to \"equal\" or \"measured\"");
  }
  turn_broken_pipes_into_errors();
  const train::TuneResult result = train::tune_plan(config, arguments.tune);
  const TuneFiles files = write_tune_files(result, arguments.out, written);
  for (const tune::Refusal& refusal : result.search.refusals)
    log_debug("left out: ", counted(refusal.count, "choice"), ": ", refusal.why);
  arguments.output.print(json_of_tuning(result, files), text_of_tuning(result, files));
}

}  // namespace

void add_tune(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "tune", "Find the fastest plan (devices, replicas, partition, schedule, chunks) for this machine");
  const auto arguments = std::make_shared<TuneArguments>();
  arguments->config.add_to(*command);
  command
      ->add_option("--profile", arguments->profiles,
                   "Profile of this model, by `sluice profile`; may be repeated for other numbers of threads per "
                   "device. Default: the layers are measured first")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->check(not_empty);
  command->add_option("--verify", arguments->tune.verify, "Number of best plans to run for some steps; 0: none")
      ->check(CLI::Range(0, tune::kMostCandidates))
      ->capture_default_str();
  command->add_option("--budget", arguments->tune.budget_s, "Time limit of the command in seconds")
      ->type_name("S")
      ->check(within(1, 1e6))
      ->capture_default_str();
  command
      ->add_option("--memory", arguments->memory,
                   "Memory of each device, for example 16GiB (default: device.memory_limit)")
      ->type_name("SIZE")
      ->check(memory_size);
  command
      ->add_option("--keep", arguments->tune.keep,
                   concat("Keep the configured value of this key, one of ", join(train::tuned_keys(), ", "),
                          "; may be repeated"))
      ->type_name("KEY")
      ->allow_extra_args(false);
  arguments->batch.add_to(*command);
  command
      ->add_option("--out", arguments->out,
                   "File for the configuration with the chosen plan. Measured profiles are written next to it: "
                   "tuned.profile.json, for sluice simulate")
      ->type_name("FILE")
      ->capture_default_str()
      ->check(not_empty);
  arguments->output.add_to(*command);
  command->callback([arguments] { run_tune_command(*arguments); });
}

}  // namespace sluice::app
