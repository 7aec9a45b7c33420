#include <memory>

#include "app/commands.h"
#include "app/options.h"
#include "app/process.h"
#include "app/version.h"
#include "comm/world.h"
#include "core/concat.h"
#include "core/error.h"
#include "train/run/train_run.h"
#include "train/setup/machine_fit.h"
#include "train/setup/peers.h"

namespace sluice::app {
namespace {

struct TrainArguments {
  ConfigArguments config;
  OutputArguments output;
  train::TrainRunOptions run;
  comm::WorldOptions world;
  std::string traced;
  bool dry_run = false;
};

void run_train_command(TrainArguments& arguments) {
  const config::Config config = arguments.config.load(arguments.world);
  arguments.run.config_file = arguments.config.file;
  // The server's address also serves as rendezvous address if --init is not given.
  if (config.replicas.has_server() && !config.ps.address.empty() && arguments.world.init.empty())
    arguments.world.init = concat("tcp://", config.ps.address.substr(0, config.ps.address.find(',')));
  arguments.run.launch = {comm::choose_world(arguments.world), kVersion, end_with};
  arguments.run.traced = train::parse_step_range(arguments.traced, "--trace");
  if (arguments.dry_run) {
    const train::PlanDescription plan = train::describe_training(config, arguments.run);
    arguments.output.print(plan.json, plan.text);
    return;
  }
  turn_broken_pipes_into_errors();
  try {
    train::refuse_too_few_open_files(arguments.run.launch.world.size);
  } catch (const Error& error) {
    train::send_failure_to_peers(arguments.run.launch.world, error);
    throw;
  }
  const nlohmann::ordered_json summary = train::run_training(config, arguments.run);
  if (arguments.output.json) arguments.output.print(summary, "");  // the log already has this for readers
}

void add_run_options(CLI::App& command, const std::shared_ptr<TrainArguments>& arguments, const std::string& run_dir) {
  arguments->config.add_to(command);
  command
      .add_option("--run-dir", arguments->run.run_dir,
                  "Directory of the run; default: runs/<config>-<date>-<time>. " + run_dir)
      ->type_name("DIR")
      ->check(not_empty);
  CLI::Option* resume =
      command
          .add_option("--resume", arguments->run.resume,
                      "Resume from a run or checkpoint directory. auto: from the newest checkpoint of --run-dir; "
                      "without --run-dir, from that of the newest runs/<config>-* with the same model, data and "
                      "training settings. If there is none, the run starts anew")
          ->type_name("DIR|auto")
          ->check(not_empty);
  command
      .add_flag("--accept-new-data", arguments->run.accept_new_data,
                "Resume although the training data differ from the checkpoint's. If the number of samples has "
                "changed, the epoch that had begun ends")
      ->needs(resume);
  command.add_flag("--dry-run", arguments->dry_run,
                   "Print the plan (stages, layers, parameters, bytes, chunks) and exit");
  arguments->output.add_to(command);
  command.callback([arguments] { run_train_command(*arguments); });
}

}  // namespace

void add_train(CLI::App& app) {
  const auto arguments = std::make_shared<TrainArguments>();
  CLI::App& command = *app.add_subcommand("train", "Train the model of a configuration");
  add_run_options(command, arguments,
                  "A worker of a parameter server writes workers/N.jsonl into it, and nothing without this option");
  command
      .add_option("--trace", arguments->traced,
                  "Trace every process in these steps and write trace.rankN.json.gz into the run directory, for "
                  "ui.perfetto.dev, chrome://tracing and HolisticTraceAnalysis. Rank 0's option counts. With "
                  "profile.level = \"torch\", LibTorch's own profiler also writes torch_trace.rankN.json.gz")
      ->type_name("FIRST..LAST")
      ->check(not_empty);
  add_world_options(command, arguments->world);
}

void add_serve(CLI::App& app) {
  const auto arguments = std::make_shared<TrainArguments>();
  arguments->run.serving.serves = true;
  CLI::App& command =
      *app.add_subcommand("serve",
                          "Run the parameter server of workers that are started separately with sluice train "
                          "(ps.placement = \"servers\"); it keeps the run's records and checkpoints");
  add_run_options(command, arguments,
                  "A server other than 0 writes into its servers/N, and nothing without this option");
  command
      .add_option("--server", arguments->run.serving.server,
                  "Number of this server, one of ps.servers. Server 0 makes the decisions and keeps the records; "
                  "the others keep a part of the weights. With ps.log, the others need --run-dir for their logs")
      ->type_name("N");
}

}  // namespace sluice::app
