// history: what a run's records say over its steps, thinned for plots: loss, accuracy, speed, where the time went, the
// network, the pushes of a parameter server, and what happened on the way. Takes records as they come (run_log.h).
// Memory does not grow with the steps. Values.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "report/html/thinned.h"

namespace sluice::report {

// The parts of a step that a page stacks, disjoint, in milliseconds by their names; they add up to step_ms. Of a step
// line, or of a slot of a breakdown; empty where no time is recorded.
[[nodiscard]] std::map<std::string, double> parts_of(const nlohmann::ordered_json& line);

class History {
 public:
  void add(const nlohmann::ordered_json& line, const std::string& event);

  // "curves": by name, "parts": means over time, "network", "workers", "staleness", "happenings".
  [[nodiscard]] nlohmann::ordered_json json() const;
  // The lines of the changes of plan, however much else happened.
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
  std::map<std::string, Thinned> network_;  // "eth0 sent"
  BucketMeans parts_;
  std::map<int, Worker> workers_;
  std::map<std::int64_t, std::int64_t> staleness_;  // how many pushes were so stale
  std::int64_t more_workers_ = 0;                   // pushes of workers beyond the most that are drawn
  nlohmann::ordered_json happenings_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json transitions_ = nlohmann::ordered_json::array();
  std::int64_t more_happenings_ = 0;
};

}  // namespace sluice::report
