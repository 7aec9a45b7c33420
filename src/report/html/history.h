// history: thinned series of a run's records for plots: loss, accuracy, speed, phases, network, pushes of a parameter
// server, and events. Takes records one by one (run_log.h). Memory does not grow with the steps.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "report/html/thinned.h"

namespace sluice::report {

// The disjoint parts of a step line or slot in milliseconds by name. Empty if no times were recorded.
[[nodiscard]] std::map<std::string, double> parts_of(const nlohmann::ordered_json& line);

class History {
 public:
  void add(const nlohmann::ordered_json& line, const std::string& event);

  // "curves" by name, "parts" (means over time), "network", "workers", "staleness", "happenings".
  [[nodiscard]] nlohmann::ordered_json json() const;
  [[nodiscard]] const nlohmann::ordered_json& transitions() const { return transitions_; }

 private:
  struct Worker {
    Thinned staleness{120}, examples{120}, compute_s{120};
  };

  void add_step(const nlohmann::ordered_json& line);
  void add_network(const nlohmann::ordered_json& line);
  void add_evaluation(const nlohmann::ordered_json& line);
  void add_push(const nlohmann::ordered_json& line);
  void add_happening(const nlohmann::ordered_json& line, const std::string& event);
  void add_value(const char* curve, const nlohmann::ordered_json& line, const char* field);

  std::map<std::string, Thinned> curves_;
  std::map<std::string, Thinned> network_;  // key: "eth0 sent"
  BucketMeans parts_;
  std::map<int, Worker> workers_;
  std::map<std::int64_t, std::int64_t> staleness_;
  std::int64_t more_workers_ = 0;  // pushes of workers beyond the drawn maximum
  nlohmann::ordered_json happenings_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json transitions_ = nlohmann::ordered_json::array();
  std::int64_t more_happenings_ = 0;
};

}  // namespace sluice::report
