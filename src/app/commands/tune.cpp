#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/commands/tune_batch.h"
#include "app/options.h"
#include "app/process.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "core/text_table.h"
#include "storage/files.h"
#include "train/resume.h"
#include "train/tuning.h"

namespace sluice::app {
namespace {

using nlohmann::ordered_json;
using train::TuneResult;
using train::VerifiedPlan;

struct TuneArguments {
  ConfigArguments config;
  OutputArguments output;
  train::TuneOptions tune;
  BatchArguments batch;
  std::vector<std::string> profiles;
  std::string memory;
  std::string out = "tuned.toml";
};

constexpr const char* kNotVerified = ", the best by prediction, not verified by a run";

std::string ms(double seconds) { return fixed(seconds * 1e3, 1); }

std::string plan_text(const Plan& plan) {
  std::vector<std::string> counts;
  for (const int layers : plan.partition.layers_per_stage) counts.push_back(std::to_string(layers));
  return concat(plan.replicas, " x ", plan.devices(), " devices, ", plan.schedule, ", chunks ", plan.chunks,
                ", layers ", join(counts, "+"), plan.recompute_any() ? ", recomputing" : "");
}

ordered_json json_of_candidate(const tune::Candidate& candidate) {
  return {{"plan", train::plan_json(candidate.plan)},
          {"step_s", candidate.step.seconds},
          {"samples_per_s", candidate.samples_per_s},
          {"device_bytes", candidate.device_bytes}};
}

// The terms of a step, means over its devices.
struct Terms {
  double compute = 0;
  double all_reduce = 0;
  double update = 0;
  double load = 0;
};
Terms terms_of(const tune::StepPrediction& step) {
  Terms mean;
  const auto devices = static_cast<double>(step.devices.size());
  for (const tune::DevicePrediction& device : step.devices) {
    mean.compute += device.compute / devices;
    mean.all_reduce += device.all_reduce / devices;
    mean.update += device.update / devices;
    mean.load += device.load / devices;
  }
  return mean;
}

ordered_json json_of_verified(const VerifiedPlan& verified) {
  ordered_json json = json_of_candidate(verified.predicted);
  if (!verified.ran()) {
    json["failure"] = verified.measured.failure;
    return json;
  }
  const Terms predicted = terms_of(verified.predicted.step);
  json["measured_step_s"] = verified.measured.step_s;
  json["measured_error"] = verified.measured.error;
  json["error"] = verified.error();
  json["measured_peak_bytes"] = verified.measured.peak_bytes;
  json["terms"] = {{"compute_s", {{"predicted", predicted.compute}, {"measured", verified.measured.compute_s}}},
                   {"allreduce_exposed_s",
                    {{"predicted", predicted.all_reduce}, {"measured", verified.measured.allreduce_exposed_s}}},
                   {"optimizer_s", {{"predicted", predicted.update}, {"measured", verified.measured.update_s}}},
                   {"load_s", {{"predicted", predicted.load}, {"measured", verified.measured.load_s}}}};
  return json;
}

ordered_json json_of_tuning(const TuneResult& result, const std::string& out) {
  ordered_json best = ordered_json::array(), refusals = ordered_json::array(), verified = ordered_json::array();
  for (const tune::Candidate& candidate : result.search.best) {
    best.push_back(json_of_candidate(candidate));
    best.back()["refitted_step_s"] = result.refit.seconds(candidate);
  }
  for (const tune::Refusal& refusal : result.search.refusals)
    refusals.push_back(
        {{"why", refusal.why}, {"families", refusal.count}, {"example", train::plan_json(refusal.plan)}});
  for (const VerifiedPlan& one : result.verified) verified.push_back(json_of_verified(one));
  ordered_json json{{"out", out},
                    {"chosen", json_of_candidate(result.chosen)},
                    {"is_verified", result.is_verified},
                    {"threads", result.threads},
                    {"best", best},
                    {"verified", verified},
                    {"refused", refusals},
                    {"is_proven", result.search.is_proven},
                    {"plans_predicted", result.search.tried},
                    {"seconds", result.seconds},
                    {"budget_use", result.budget_use}};
  if (!result.left_out.empty()) json["left_out"] = result.left_out;
  if (result.batch) json["batch"] = json_of_batch(*result.batch);
  if (result.first_guess) json["first_guess_chunks"] = *result.first_guess;
  return json;
}

std::string candidates_table(const TuneResult& result) {
  std::vector<TextRow> rows{{"plan", "predicted ms", "refitted", "measured ms", "error", "memory"}};
  for (std::size_t i = 0; i < result.search.best.size(); ++i) {
    const tune::Candidate& candidate = result.search.best[i];
    const auto run_of = std::ranges::find(result.verified, candidate.plan,
                                          [](const VerifiedPlan& one) -> const Plan& { return one.predicted.plan; });
    const VerifiedPlan* const run = run_of != result.verified.end() ? &*run_of : nullptr;
    const bool ran = run != nullptr && run->ran();
    std::uint64_t most = 0;
    for (const std::uint64_t bytes : candidate.device_bytes) most = std::max(most, bytes);
    rows.push_back({plan_text(candidate.plan), ms(candidate.step.seconds), ms(result.refit.seconds(candidate)),
                    ran ? ms(run->measured.step_s) : (run != nullptr ? "does not run" : ""),
                    ran ? concat(fixed(100 * run->error(), 1), " %") : "", human_bytes(most)});
  }
  return text_table(rows, std::array{Align::kLeft, Align::kRight});
}

std::string terms_text(const TuneResult& result) {
  std::string text;
  for (const VerifiedPlan& one : result.verified) {
    if (!one.ran()) continue;
    const Terms predicted = terms_of(one.predicted.step);
    text += concat("\n", plan_text(one.predicted.plan), ": compute ", ms(predicted.compute), " predicted, ",
                   ms(one.measured.compute_s), " measured; all-reduce ", ms(predicted.all_reduce), ", ",
                   ms(one.measured.allreduce_exposed_s), "; optimizer ", ms(predicted.update), ", ",
                   ms(one.measured.update_s), "; loading ", ms(predicted.load), ", ", ms(one.measured.load_s), " ms");
  }
  return text;
}

std::string text_of_tuning(const TuneResult& result, const std::string& out) {
  std::string text = result.batch ? text_of_batch(*result.batch, out) : std::string();
  text += concat("the best plans on ", counted(result.places, "device"), " by prediction, ", result.verified.size(),
                 " of them run for some steps:\n\n", candidates_table(result), "\n", terms_text(result));
  for (const tune::Refusal& refusal : result.search.refusals)
    text += concat("\nlost: ", counted(refusal.count, "choice"), ": ", refusal.why);
  if (result.first_guess)
    text += concat("\nchunks: the first guess sqrt((p - 1) s B / a) is ", *result.first_guess, ", the search found ",
                   result.chosen.plan.chunks);
  if (!result.search.is_proven) text += "\nthe search ran out of time: a better plan may exist; raise --budget";
  if (!result.left_out.empty()) text += concat("\n", result.left_out);
  return text + concat("\nused ", result.budget_use, "\nchosen: ", plan_text(result.chosen.plan),
                       result.is_verified ? "" : kNotVerified, "; written to ", out);
}

void run_tune_command(TuneArguments& arguments) {
  arguments.tune.config_file = arguments.config.file;
  for (const std::string& file : arguments.profiles) arguments.tune.profiles.emplace_back(file);
  std::vector<std::filesystem::path> inputs{arguments.config.file};
  inputs.insert(inputs.end(), arguments.tune.profiles.begin(), arguments.tune.profiles.end());
  storage::check_output("--out", arguments.out, inputs);
  arguments.tune.batch = arguments.batch.parse();
  if (!arguments.memory.empty()) arguments.config.sets.push_back(concat("device.memory_limit=", arguments.memory));
  const config::Config config = arguments.config.load();
  turn_fatal_writes_into_errors();
  const TuneResult result = train::tune_plan(config, arguments.tune);
  const bool has_other_batch = result.batch && result.batch->changes();
  const std::string first_line = concat("# ", arguments.config.file, ", with the plan",
                                        has_other_batch ? ", the global batch and its learning rate" : "",
                                        " that sluice tune found", result.is_verified ? "" : kNotVerified, "\n\n");
  storage::write_text_atomically(arguments.out, concat(first_line, config::to_toml(result.tuned)));
  arguments.output.print(json_of_tuning(result, arguments.out), text_of_tuning(result, arguments.out));
}

}  // namespace

void add_tune(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "tune",
      "Find the plan (devices, replicas, cut, schedule, chunks) with the most samples a second on this machine");
  const auto arguments = std::make_shared<TuneArguments>();
  arguments->config.add_to(*command);
  command
      ->add_option("--profile", arguments->profiles,
                   "What `sluice profile` measured of this model; several of different threads a device may be given. "
                   "Without it the layers are measured first")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->check(not_empty);
  command->add_option("--verify", arguments->tune.verify, "So many of the best plans are run for some steps; 0: none")
      ->check(CLI::Range(0, tune::kMostCandidates))
      ->capture_default_str();
  command->add_option("--budget", arguments->tune.budget_s, "Seconds for all of it")
      ->type_name("S")
      ->check(within(1, 1e6))
      ->capture_default_str();
  command->add_option("--memory", arguments->memory, "Memory of each device, as 16GiB (default: device.memory_limit)")
      ->type_name("SIZE")
      ->check(not_empty);
  command
      ->add_option("--keep", arguments->tune.keep,
                   concat("Leave this key as configured, of ", join(train::tuned_keys(), ", "), "; may be repeated"))
      ->type_name("KEY")
      ->allow_extra_args(false);
  arguments->batch.add_to(*command);
  command->add_option("--out", arguments->out, "The configuration with the chosen plan, for sluice train")
      ->type_name("FILE")
      ->capture_default_str()
      ->check(not_empty);
  arguments->output.add_to(*command);
  command->callback([arguments] { run_tune_command(*arguments); });
}

}  // namespace sluice::app
