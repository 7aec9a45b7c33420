// goodput: how much of a run's time its steps took, and what took the rest, from the lines of metrics.jsonl. Steps that
// were made again count once. Pure.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace sluice::report {

class Goodput {
 public:
  void add(const nlohmann::ordered_json& line, const std::string& event);

  // {"goodput": part of the time, "lost_s": {...}}; seconds by cause. "restart": from the last step that was kept until
  // training went on after a loss, a joining process or a resume, with work that was made again. Empty if no step or,
  // in older records, no clock was recorded.
  [[nodiscard]] nlohmann::ordered_json json() const;
  [[nodiscard]] std::string text() const;  // one line; empty as json()

 private:
  [[nodiscard]] double wall_s() const { return last_unix_s_ - first_unix_s_; }

  double first_unix_s_ = 0, last_unix_s_ = 0;
  double plan_unix_s_ = 0, plan_time_s_ = 0;  // of the last line with the clock
  double steps_s_ = 0, evaluation_s_ = 0, saving_s_ = 0, restart_s_ = 0;
};

}  // namespace sluice::report
