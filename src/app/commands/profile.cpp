#include <array>
#include <memory>

#include "app/commands.h"
#include "app/options.h"
#include "app/process.h"
#include "app/version.h"
#include "core/concat.h"
#include "core/text.h"
#include "core/text_table.h"
#include "profiler/gpu_repeat_timing.h"
#include "profiler/layer_profile.h"
#include "report/operator_table.h"
#include "train/study/profile.h"

namespace sluice::app {
namespace {

using profiler::LayerProfile;

struct ProfileArguments {
  ConfigArguments config;
  OutputArguments output;
  train::ProfileOptions profile{.out = "profile.json"};
  comm::WorldOptions world;
};

std::string milliseconds(double seconds) { return fixed(seconds * 1e3, 3); }

// "12.1 + 3.45 n"
std::string line_text(const SizedCost& cost) {
  return concat(fixed(cost.a_s * 1e6, 1), " + ", fixed(cost.b_s * 1e6, 2), " n");
}

std::string times_table(const LayerProfile& profile) {
  const auto samples = static_cast<double>(profile.micro_batch);
  std::vector<TextRow> rows{{"layer", "forward ms", "input ms", "weight ms", "forward us", "input us", "weight us"}};
  LayerCost sum;
  const auto add_row = [&](const std::string& name, const LayerCost& cost) {
    rows.push_back({name, milliseconds(cost.forward.at(samples)), milliseconds(cost.input_gradient.at(samples)),
                    milliseconds(cost.weight_gradient.at(samples)), line_text(cost.forward),
                    line_text(cost.input_gradient), line_text(cost.weight_gradient)});
  };
  const auto add = [](SizedCost& to, const SizedCost& from) { to.a_s += from.a_s, to.b_s += from.b_s; };
  for (const profiler::MeasuredLayer& layer : profile.layers) {
    add_row(layer.name, layer.cost);
    add(sum.forward, layer.cost.forward);
    add(sum.input_gradient, layer.cost.input_gradient);
    add(sum.weight_gradient, layer.cost.weight_gradient);
  }
  add_row("all", sum);
  return text_table(rows, std::array{Align::kLeft, Align::kRight});
}

std::string bytes_table(const LayerProfile& profile) {
  std::vector<TextRow> rows{{"layer", "output", "saved", "saves input", "parameters", "gradients", "optimizer"}};
  for (const profiler::MeasuredLayer& layer : profile.layers) {
    const LayerCost& cost = layer.cost;
    const std::string fixed_part =
        cost.saved_bytes.fixed == 0 ? "" : concat(" + ", human_bytes(cost.saved_bytes.fixed), " a micro-batch");
    rows.push_back({layer.name, human_bytes(cost.output_bytes),
                    concat(human_bytes(cost.saved_bytes.per_sample), fixed_part), cost.saves_input ? "yes" : "no",
                    human_bytes(cost.parameter_bytes), human_bytes(cost.gradient_bytes),
                    human_bytes(cost.optimizer_bytes)});
  }
  return text_table(rows, std::array{Align::kLeft, Align::kRight});
}

std::string link_text(const LinkCost& link) {
  return concat(fixed(link.latency_s * 1e6, 1), " us",
                link.bytes_per_s
                    ? concat(" + bytes / ", human_bytes(static_cast<std::uint64_t>(*link.bytes_per_s)), "/s")
                    : ", whatever the size: handed over, not copied");
}

std::string update_text(const AffineCost& update) {
  return concat(fixed(update.a_s * 1e6, 1), " us + ", fixed(update.b_s * 1e6 * 1024 * 1024, 1), " us a MiB of weights");
}

std::string server_text(const ServerCost& cost) {
  return concat("\nparameter server: push ", link_text(cost.push), "; pull ", link_text(cost.pull),
                "; update of a push ", update_text(cost.update), ", each further push ", update_text(cost.merge));
}

std::string links_text(const LayerProfile& profile) {
  std::string text;
  for (const profiler::StageLink& link : profile.stage_links) {
    text += concat("\nstage ", link.from_stage, " to ", link.to_stage, " (", link.from_device, " to ", link.to_device,
                   "): ", link_text(link.cost));
  }
  for (const profiler::AllReduceLink& sum : profile.all_reduces)
    text += concat("\nall-reduce (", counted(sum.processes, "process"), ", ", counted(sum.local_replicas, "replica"),
                   " in each): ", link_text(sum.cost));
  if (profile.update) text += concat("\noptimizer: ", update_text(*profile.update));
  if (profile.server) text += server_text(profile.server->cost);
  if (profile.load)
    text += concat("\nloading by one thread: ", fixed(profile.load->sample_s * 1e6, 1), " us a sample, of it ",
                   fixed(profile.load->cpu_s * 1e6, 1), " us at work");
  return text;
}

std::string steps_text(const profiler::StepSummary& step) {
  const auto ms = [](double seconds) { return concat(fixed(seconds * 1e3, 1), " ms"); };
  return concat("\nmedian of ", counted(step.steps, "step"), ": ", ms(step.median_s), ", ",
                fixed(step.samples_per_s, 1), " samples/s; the fastest: ", ms(step.fastest_s), "; without load ",
                ms(step.median_without_load_s), ", predicted ", ms(step.predicted_s), " (computing ",
                ms(step.compute_s), ", by the layers alone ", ms(step.predicted_compute_s),
                "), of it all-reduce that nothing hides ", ms(step.predicted_allreduce_s), ", optimizer ",
                ms(step.predicted_update_s));
}

std::string memory_text(const LayerProfile& profile) {
  std::vector<TextRow> rows{{"stage", "device", "keeps between actions", "predicted"}};
  for (const profiler::StageMemory& stage : profile.stage_memory) {
    rows.push_back({std::to_string(stage.stage), stage.device, human_bytes(stage.live_bytes),
                    human_bytes(stage.predicted_live_bytes)});
  }
  std::string text = concat("\n\n", text_table(rows, std::array{Align::kLeft, Align::kLeft, Align::kRight}));
  for (const profiler::DeviceMemory& device : profile.device_memory) {
    text += concat("\n", device.device, " took at most ", human_bytes(device.peak_bytes), ", predicted ",
                   human_bytes(device.predicted_peak_bytes));
  }
  return text;
}

// Lists launch-bound layers at the configured micro-batch; empty if no layers were measured on a GPU.
std::string launches_text(const LayerProfile& profile) {
  const profiler::LaunchBound bound = profiler::launch_bound_layers(profile, profile.micro_batch);
  if (bound.layers == 0) return "";
  return concat("\n\n", counted(bound.layers, "layer"), bound.layers == 1 ? " is" : " are",
                " launch-bound: their calls take the host ", milliseconds(bound.host_s), " ms a micro-batch, the GPU ",
                milliseconds(bound.device_s), " ms; larger micro-batches would use it better");
}

std::string text_of(const LayerProfile& profile) {
  return concat("micro-batches of n = ", counted(profile.micro_batch, "sample"), "; times as fitted, a + b n\n",
                times_table(profile), launches_text(profile),
                "\n\nbytes a sample (output, saved), and of all (the others)\n", bytes_table(profile), "\n",
                links_text(profile), profile.step ? steps_text(*profile.step) : "",
                profile.stage_memory.empty() ? "" : memory_text(profile));
}

std::string operators_text(const profiler::OperatorProfile& operators) {
  return concat("\n\noperators, the slowest first; means of ", counted(operators.passes, "pass"), " with ",
                counted(operators.micro_batch, "sample"),
                "; measured peaks: ", fixed(operators.peaks.flops_per_s * 1e-9, 1), " GFLOP/s, ",
                fixed(operators.peaks.bytes_per_s * 1e-9, 1), " GB/s",
                operators.peaks.is_of_cache ? " (of the cache: no memory is free for larger tensors)" : "", "\n",
                report::operator_table(operators));
}

void run_profile_command(ProfileArguments& arguments) {
  arguments.profile.config_file = arguments.config.file;
  const config::Config config = arguments.config.load(arguments.world);
  arguments.profile.launch = {comm::choose_world(arguments.world), kVersion, end_with};
  turn_broken_pipes_into_errors();
  const auto outcome = train::run_profile(config, arguments.profile);
  if (!outcome) return;
  std::string text = text_of(outcome->profile);
  if (outcome->operators) text += operators_text(*outcome->operators);
  if (!outcome->step_table.empty()) text += concat("\n\n", outcome->step_table);
  for (const tune::Advice& one : outcome->advice) text += concat("\nadvice, from these steps: ", one.sentence);
  arguments.output.print(outcome->to_json(), text);
}

}  // namespace

void add_profile(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "profile",
      "Measure what each layer costs (time as a + b * samples, bytes), the links between devices, and some training "
      "steps");
  const auto arguments = std::make_shared<ProfileArguments>();
  arguments->config.add_to(*command);
  command
      ->add_option("--out", arguments->profile.out,
                   "The JSON file to write (docs/reference/profile_file.md), for planning here or elsewhere")
      ->type_name("FILE")
      ->capture_default_str()
      ->check(not_empty);
  command
      ->add_option("--trace", arguments->profile.trace,
                   "Trace every process in the training steps and write this .json or .json.gz file, for "
                   "ui.perfetto.dev, chrome://tracing and HolisticTraceAnalysis; with several processes "
                   "FILE.rankN.json.gz")
      ->type_name("FILE")
      ->check(not_empty);
  command->add_flag("--layers", arguments->profile.with_operators,
                    "List the slowest operators of each layer on a CPU device, and what limits their speed");
  command
      ->add_option("--budget", arguments->profile.budget_s,
                   "Time limit in seconds. To stay within it, fewer sizes and steps are measured; results are "
                   "written as they complete. Default: no limit")
      ->type_name("S")
      ->check(within(1, 1e6));
  arguments->output.add_to(*command);
  add_world_options(*command, arguments->world);
  command->callback([arguments] { run_profile_command(*arguments); });
}

}  // namespace sluice::app
