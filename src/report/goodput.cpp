#include "report/goodput.h"

#include <algorithm>
#include <vector>

#include "core/concat.h"
#include "core/text.h"
#include "report/record_fields.h"

namespace sluice::report {

using Json = nlohmann::ordered_json;

// time_s leaves out the time between the starts of a run, so a start notes the clock.
void Goodput::add(const Json& line, const std::string& event) {
  const double time_s = number_at(line, "time_s").value_or(0);
  if (event == "plan") {
    const auto unix_s = number_at(line, "unix_s");
    if (!unix_s) return;
    if (first_unix_s_ == 0) first_unix_s_ = *unix_s - time_s, last_unix_s_ = *unix_s;
    restart_s_ += std::max(0.0, *unix_s - last_unix_s_);  // of another machine, whose clock may be behind
    plan_unix_s_ = *unix_s;
    plan_time_s_ = time_s;
  }
  if (first_unix_s_ == 0) return;
  last_unix_s_ = std::max(last_unix_s_, plan_unix_s_ + time_s - plan_time_s_);
  if (event == "step") steps_s_ += number_at(line, "step_ms").value_or(0) / 1e3;
  if (event == "eval") evaluation_s_ += number_at(line, "eval_s").value_or(0);
  if (event == "checkpoint") saving_s_ += number_at(line, "save_s").value_or(0);
}

Json Goodput::json() const {
  if (steps_s_ <= 0 || wall_s() <= 0) return Json::object();
  const double other_s = std::max(0.0, wall_s() - steps_s_ - evaluation_s_ - saving_s_ - restart_s_);
  return {
      {"goodput", std::min(1.0, steps_s_ / wall_s())},
      {"lost_s", {{"restart", restart_s_}, {"evaluation", evaluation_s_}, {"saving", saving_s_}, {"other", other_s}}}};
}

std::string Goodput::text() const {
  const Json fields = json();
  if (fields.empty()) return "";
  std::vector<std::string> losses;
  for (const auto& [cause, seconds] : fields.at("lost_s").items())
    losses.push_back(concat(cause, " ", human_duration(seconds.get<double>())));
  return concat("goodput ", fixed(100 * fields.at("goodput").get<double>(), 1), " %: steps took ",
                human_duration(steps_s_), " of ", human_duration(wall_s()), "; the rest: ", join(losses, ", "));
}

}  // namespace sluice::report
