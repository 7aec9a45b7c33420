// record_sums: what the step lines of a run, or of a worker, add up to: times (_ms) and sync_bytes over the steps,
// rates
// (_per_s, mfu) over their time. The parts of a rate are averaged over the same steps as the rate. Not here: reading
// the lines (record_lines.h). Values.
#pragma once

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
  [[nodiscard]] std::vector<double> busy() const;  // by device, mean over the time; empty when not recorded

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

  void add_network(const nlohmann::ordered_json& line, double time);
  void add_flops(const nlohmann::ordered_json& line, double time);
  void add_busy(const nlohmann::ordered_json& line, double time);

  std::map<std::string, WeightedSum> sums_;
  PartSums network_, flops_;
  std::vector<WeightedSum> busy_;
};

}  // namespace sluice::report
