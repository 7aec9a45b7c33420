// record_sums: what the step lines of a run, or of a worker, add up to: times (_ms) and sync_bytes over the steps,
// rates (_per_s) over their time, mfu and what devices were busy over the time of devices, whose number may change.
// The parts of a rate are averaged over the same steps as the rate. Not here: reading the lines (record_lines.h).
// Values.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/record_fields.h"

namespace sluice::report {

class RecordSums {
 public:
  void add(const nlohmann::ordered_json& line);
  void add(const RecordSums& more);

  // By field; of the parts "net/<interface>/sent" and "/received" (net_bytes_per_s), "flops_per_s_by_kind/<kind>".
  [[nodiscard]] Numbers means() const;
  [[nodiscard]] std::vector<double> busy() const;         // by device, mean over the time; empty when not recorded
  [[nodiscard]] std::optional<double> busy_mean() const;  // of all devices
  // Steps with a breakdown, and what one took in the mean.
  [[nodiscard]] std::int64_t timed_steps() const { return timed_steps_; }
  [[nodiscard]] double timed_step_ms() const;

 private:
  struct WeightedSum {
    double sum = 0;
    double weight = 0;

    void add(double value, double of_weight);
    void add(const WeightedSum& more);
  };
  // The parts of a rate. A part that a line does not name was nothing in that step.
  struct PartSums {
    std::map<std::string, double> sums;
    double weight = 0;

    void add(const std::string& name, std::optional<double> part, double of_weight);
    void add(const PartSums& more);
  };

  void add_number(const nlohmann::ordered_json& line, const std::string& name, const nlohmann::ordered_json& value,
                  double time);
  void add_timed(double time);
  void add_network(const nlohmann::ordered_json& line, double time);
  void add_flops(const nlohmann::ordered_json& line, double time);
  void add_busy(const nlohmann::ordered_json& line, double time);

  std::map<std::string, WeightedSum> sums_;
  PartSums network_, flops_;
  std::vector<WeightedSum> busy_;
  std::int64_t timed_steps_ = 0;
  double timed_ms_ = 0;
};

}  // namespace sluice::report
