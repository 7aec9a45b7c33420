#include "report/html/predictions.h"

#include <cmath>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "profiler/layer_profile.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }

void add_sentence(Json& rows, const std::string& text) {
  rows.push_back({{"what", text}, {"predicted_ms", nullptr}, {"measured_ms", nullptr}});
}

// Step time without loading, for comparison with the profile: under the last plan and without its first steps if the
// summary has it, otherwise the mean of the run.
std::optional<double> without_load(const RunLog& log) {
  const auto settled = number_at(log.summary, "step_ms_of_last_plan");
  const auto step = settled ? settled : number_in(log.means, "step_ms");
  return step ? std::optional(*step - number_in(log.means, "load_ms").value_or(0)) : std::nullopt;
}

void add(Json& rows, const std::string& what, std::optional<double> predicted, std::optional<double> measured) {
  if (predicted)
    rows.push_back({{"what", what}, {"predicted_ms", *predicted}, {"measured_ms", number_or_null(measured)}});
}

std::string difference(const profiler::LayerProfile& profile, const RunReport& run) {
  const Json& plan = run.log.plan;
  const auto batch = count_at(plan, "global_batch", 1'000'000'000);
  const double profiled = profile.step->samples_per_s * profile.step->median_s;
  if (batch && std::lround(profiled) != *batch) return concat(std::lround(profiled), " samples a step, not ", *batch);
  if (const auto name = text_at(plan, "model"); name && *name != profile.fingerprint.model.name)
    return concat("the model ", profile.fingerprint.model.name);
  const auto stages = static_cast<std::int64_t>(profile.stage_memory.size());
  const std::int64_t devices = count_at(plan, "stages", 1'000'000).value_or(stages);
  if (stages > 0 && stages != devices && stages != devices * count_at(plan, "virtual", 1'000'000).value_or(1))
    return counted(stages, "stage");
  if (!run.config) return "";
  if (profile.fingerprint.precision != run.config->train.precision) return profile.fingerprint.precision;
  if (profile.fingerprint.winograd.value_or("2x2") != run.config->train.winograd)
    return concat("train.winograd = ", profile.fingerprint.winograd.value_or("2x2"));
  if (profile.fingerprint.optimizer != run.config->train.optimizer) return profile.fingerprint.optimizer;
  return "";
}

void add_of_profile(Json& rows, const RunReport& run) {
  const RunLog& log = run.log;
  std::error_code ignored;
  const auto file = log.dir / "profile.json";
  if (!std::filesystem::is_regular_file(file, ignored)) return;
  try {
    const auto profile = profiler::read_profile(file);
    if (!profile.step) return;
    add(rows, "the step that `sluice profile` measured, without load", profile.step->predicted_s * 1e3,
        profile.step->median_without_load_s * 1e3);
    if (const std::string other = difference(profile, run); !other.empty()) {
      add_sentence(rows,
                   concat("profile.json was measured with ", other, ", so this run's steps are not compared with it"));
      return;
    }
    add(rows, "the steps of this run without load, from profile.json", profile.step->predicted_s * 1e3,
        without_load(log));
  } catch (const Error& error) {
    add_sentence(rows, concat("profile.json cannot be used: ", error.what()));
  }
}

}  // namespace

Json predictions_of(const RunReport& run, const Json& transitions) {
  Json rows = Json::array();
  add_of_profile(rows, run);
  std::optional<double> of_last_plan;
  for (const Json& line : transitions) {
    const auto step = integer_at(line, "step").value_or(0);
    add(rows, concat("the plan until step ", step), number_at(line, "predicted_before_ms"),
        number_at(line, "measured_before_ms"));
    of_last_plan = number_at(line, "predicted_ms");
  }
  const auto measured = number_at(run.log.summary, "step_ms_of_last_plan");
  add(rows, "the last plan", of_last_plan, measured);
  const Json& summary = run.log.summary;
  const Json predicted = summary.is_object() ? summary.value("predicted", Json()) : Json();
  add(rows, concat("the last plan, by the ", text_at(predicted, "by").value_or("profile")),
      number_at(predicted, "step_ms"), measured);
  add(rows, "the last plan, from the times of its stages", number_at(predicted, "by_stages_ms"), measured);
  return rows;
}

}  // namespace sluice::report
