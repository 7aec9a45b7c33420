#include "report/html/predictions.h"

#include "core/concat.h"
#include "core/error.h"
#include "profiler/layer_profile.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }

void add(Json& rows, const std::string& what, std::optional<double> predicted, std::optional<double> measured) {
  if (predicted)
    rows.push_back({{"what", what}, {"predicted_ms", *predicted}, {"measured_ms", number_or_null(measured)}});
}

void add_of_profile(Json& rows, const RunLog& log) {
  std::error_code ignored;
  const auto file = log.dir / "profile.json";
  if (!std::filesystem::is_regular_file(file, ignored)) return;
  try {
    const auto profile = profiler::read_profile(file);
    if (!profile.step) return;
    add(rows, "the step that `sluice profile` measured", profile.step->predicted_s * 1e3, profile.step->median_s * 1e3);
    add(rows, "the steps of this run, from profile.json", profile.step->predicted_s * 1e3,
        number_in(log.means, "step_ms"));
  } catch (const Error& error) {
    rows.push_back({{"what", concat("profile.json cannot be used: ", error.what())},
                    {"predicted_ms", nullptr},
                    {"measured_ms", nullptr}});
  }
}

}  // namespace

Json predictions_of(const RunLog& log, const Json& happenings) {
  Json rows = Json::array();
  add_of_profile(rows, log);
  std::optional<double> of_last_plan;
  for (const Json& line : happenings) {
    if (text_at(line, "event") != "transition") continue;
    const auto step = integer_at(line, "step").value_or(0);
    add(rows, concat("the plan until step ", step), number_at(line, "predicted_before_ms"),
        number_at(line, "measured_before_ms"));
    of_last_plan = number_at(line, "predicted_ms");
  }
  add(rows, "the last plan", of_last_plan, number_at(log.summary, "step_ms_of_last_plan"));
  return rows;
}

}  // namespace sluice::report
