// record_sums: sums and means of the step lines of a run or worker. Times (_ms) and sync_bytes are averaged over steps,
// rates (_per_s) over their time. mfu and device utilization are averaged over device time, because the number of
// devices may change. The parts of a rate use the same steps as the rate.
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

  // Means by field. Parts of rates: "net/<interface>/sent" and "/received" (net_bytes_per_s),
  // "flops_per_s_by_kind/<kind>".
  [[nodiscard]] Numbers means() const;
  [[nodiscard]] std::vector<double> busy() const;  // by device, mean over time; empty: not recorded
  [[nodiscard]] std::optional<double> busy_mean() const;
  // Number of steps with a breakdown, and their mean time.
  [[nodiscard]] std::int64_t timed_steps() const { return timed_steps_; }
  [[nodiscard]] double timed_step_ms() const;

 private:
  struct WeightedSum {
    double sum = 0;
    double weight = 0;

    void add(double value, double of_weight);
    void add(const WeightedSum& more);
  };
  // Sums of the parts of a rate. A part missing in a line counts as 0.
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
