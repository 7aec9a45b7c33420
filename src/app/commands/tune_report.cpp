#include "app/commands/tune_report.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "app/commands/tune_batch.h"
#include "core/concat.h"
#include "core/text.h"
#include "core/text_table.h"
#include "train/setup/run_state.h"

namespace sluice::app {
namespace {

using nlohmann::ordered_json;
using train::TuneResult;
using train::VerifiedPlan;

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
  json["error"] = verified.prediction_error();
  json["measured_peak_bytes"] = verified.measured.peak_bytes;
  json["terms"] = {{"compute_s", {{"predicted", predicted.compute}, {"measured", verified.measured.compute_s}}},
                   {"allreduce_exposed_s",
                    {{"predicted", predicted.all_reduce}, {"measured", verified.measured.allreduce_exposed_s}}},
                   {"optimizer_s", {{"predicted", predicted.update}, {"measured", verified.measured.update_s}}},
                   {"load_s", {{"predicted", predicted.load}, {"measured", verified.measured.load_s}}}};
  return json;
}

ordered_json json_of_configured(const TuneResult& result) {
  const train::ConfiguredPlan& configured = result.configured;
  if (!configured.predicted) return ordered_json::object({{"not_predicted", configured.not_predicted}});
  ordered_json json = configured.measured ? json_of_verified({*configured.predicted, *configured.measured})
                                          : json_of_candidate(*configured.predicted);
  json["refitted_step_s"] = result.refit.seconds(*configured.predicted);
  if (!configured.not_run.empty()) json["not_run"] = configured.not_run;
  return json;
}

std::uint64_t most_of(const tune::Candidate& candidate) {
  return candidate.device_bytes.empty() ? 0 : std::ranges::max(candidate.device_bytes);
}

// measured: null if the plan was not run.
TextRow candidate_row(const TuneResult& result, const std::string& name, const tune::Candidate& candidate,
                      const train::MeasuredSteps* measured) {
  TextRow row{name, ms(candidate.step.seconds), ms(result.refit.seconds(candidate))};
  if (measured == nullptr) {
    row.insert(row.end(), {"", ""});
  } else if (!measured->failure.empty()) {
    row.insert(row.end(), {"does not run", ""});
  } else {
    const VerifiedPlan run{candidate, *measured};
    row.insert(row.end(), {ms(measured->step_s), concat(fixed(100 * run.prediction_error(), 1), " %")});
  }
  row.push_back(human_bytes(most_of(candidate)));
  return row;
}

std::string candidates_table(const TuneResult& result) {
  std::vector<TextRow> rows{{"plan", "predicted ms", "refitted", "measured ms", "error", "memory"}};
  for (const tune::Candidate& candidate : result.search.best) {
    const auto run = std::ranges::find(result.verified, candidate.plan,
                                       [](const VerifiedPlan& one) -> const Plan& { return one.predicted.plan; });
    rows.push_back(candidate_row(result, plan_text(candidate.plan), candidate,
                                 run != result.verified.end() ? &run->measured : nullptr));
  }
  const train::ConfiguredPlan& configured = result.configured;
  if (configured.predicted)
    rows.push_back(candidate_row(result, concat("as configured: ", plan_text(configured.predicted->plan)),
                                 *configured.predicted, configured.measured ? &*configured.measured : nullptr));
  else
    rows.push_back({"as configured", "not predicted", "", "", "", ""});
  return text_table(rows, std::array{Align::kLeft, Align::kRight});
}

std::string configured_text(const train::ConfiguredPlan& configured) {
  if (!configured.predicted) return concat("\nas configured: not predicted: ", configured.not_predicted);
  if (!configured.not_run.empty()) return concat("\nas configured: not run: ", configured.not_run);
  if (configured.measured && !configured.ran())
    return concat("\nas configured: does not run: ", configured.measured->failure);
  return "";
}

// ", 1.25 times the samples/s of the configured plan (measured)"
std::string speedup_text(const TuneResult& result) {
  if (!result.speedup) return "";
  if (train::is_same_plan(result.chosen.plan, result.configured.predicted->plan)) return ", the plan as configured";
  return concat(", ", fixed(result.speedup->factor, 2), " times the samples/s of the configured plan (",
                result.speedup->is_measured ? "measured" : "predicted", ")");
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

std::string profiles_text(const TuneFiles& files) {
  std::vector<std::string> names;
  for (const std::string& file : files.profiles) {
    const bool is_other = std::ranges::find(files.replaced, file) != files.replaced.end();
    names.push_back(concat(file, is_other ? " (replaces an older one)" : ""));
  }
  return names.empty() ? "" : concat("\nmeasured: ", join(names, ", "));
}

}  // namespace

ordered_json json_of_tuning(const TuneResult& result, const TuneFiles& files) {
  ordered_json best = ordered_json::array(), refusals = ordered_json::array(), verified = ordered_json::array();
  for (const tune::Candidate& candidate : result.search.best) {
    best.push_back(json_of_candidate(candidate));
    best.back()["refitted_step_s"] = result.refit.seconds(candidate);
  }
  for (const tune::Refusal& refusal : result.search.refusals)
    refusals.push_back(
        {{"why", refusal.why}, {"families", refusal.count}, {"example", train::plan_json(refusal.plan)}});
  for (const VerifiedPlan& one : result.verified) verified.push_back(json_of_verified(one));
  ordered_json json{{"out", files.out},
                    {"profiles", files.profiles},
                    {"simulate", files.simulate},
                    {"chosen", json_of_candidate(result.chosen)},
                    {"is_verified", result.is_verified},
                    {"configured", json_of_configured(result)},
                    {"threads", result.threads},
                    {"best", best},
                    {"verified", verified},
                    {"refused", refusals},
                    {"is_proven", result.search.is_proven},
                    {"plans_predicted", result.search.tried},
                    {"seconds", result.seconds},
                    {"budget_use", result.budget_use}};
  if (result.speedup)
    json["speedup"] = {{"factor", result.speedup->factor}, {"by", result.speedup->is_measured ? "runs" : "prediction"}};
  if (!result.left_out.empty()) json["left_out"] = result.left_out;
  if (result.batch) json["batch"] = json_of_batch(*result.batch);
  if (result.first_guess) json["first_guess_chunks"] = *result.first_guess;
  return json;
}

std::string text_of_tuning(const TuneResult& result, const TuneFiles& files) {
  std::string text = result.batch ? text_of_batch(*result.batch, files.out) : std::string();
  text += concat("the best plans on ", counted(result.slots, "device"), " by predicted speed; ", result.verified.size(),
                 " of them run for some steps:\n\n", candidates_table(result), "\n", terms_text(result),
                 configured_text(result.configured));
  if (result.first_guess)
    text += concat("\nchunks: the first guess sqrt((p - 1) s B / a) is ", *result.first_guess, ", the search found ",
                   result.chosen.plan.chunks);
  if (!result.search.is_proven) text += "\nthe search ran out of time: a better plan may exist; raise --budget";
  if (!result.left_out.empty()) text += concat("\n", result.left_out);
  text += concat("\nused ", result.budget_use, profiles_text(files), "\nto predict it again: ", files.simulate);
  return text + concat("\nchosen: ", plan_text(result.chosen.plan), speedup_text(result),
                       result.is_verified ? "" : kNotVerified, "; written to ", files.out);
}

}  // namespace sluice::app
