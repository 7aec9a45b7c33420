// pass_report: what a pass that fails or does not end says of itself, from where each of its slots stands at one
// moment: what a slot does, whom it waits for, for whom all do. Not here: where slots stand (pass.h), who asks
// (executor.h). A slot is a device of a replica: numbered [replica][device], with the device's list of actions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

// What a slot waits for in its current action.
enum class Wait : std::uint32_t {
  kNothing,
  kMessage,    // of another stage
  kReplicas,   // in a sum over the replicas of its device
  kProcesses,  // in such a sum, as the replica that speaks for its process with the others
};

struct Standing {
  std::uint32_t position = 0;  // of the current action; the number of actions when all are done
  Wait wait = Wait::kNothing;
};

class PassReport {
 public:
  // standings: [slot]. Requires: a validated schedule, which outlives the report.
  PassReport(const Schedule& schedule, std::vector<Standing> standings);

  // Null after its last one.
  [[nodiscard]] const Action* action_at(int slot) const {
    return is_done(slot) ? nullptr : &actions_of(slot)[standings_[slot].position];
  }
  // "replica 0 stage 1 at action 1F0 (1 of 8, micro-batch 0)".
  [[nodiscard]] std::string describe_action(int slot) const;
  // The same, and ", which waits for replica 0 stage 0" where it does.
  [[nodiscard]] std::string describe(int slot) const;
  // Whom the others wait for, or the cycle in which they wait for each other; empty when nobody waits for another.
  [[nodiscard]] std::string describe_waits() const;
  // True when all that is left to do here waits, itself or through others, for the other processes: this process can do
  // nothing but wait.
  [[nodiscard]] bool waits_for_processes() const;

  // The schedule with each device's current action marked: of the replica whose action has failed at `slot`; of each
  // replica that is not done.
  [[nodiscard]] std::string draw_failed(int slot) const;
  [[nodiscard]] std::string draw_unfinished() const;

 private:
  [[nodiscard]] int devices() const { return static_cast<int>(schedule_.devices.size()); }
  [[nodiscard]] int slots() const { return static_cast<int>(standings_.size()); }
  [[nodiscard]] int replica_of(int slot) const { return slot / devices(); }
  [[nodiscard]] int device_of(int slot) const { return slot % devices(); }
  [[nodiscard]] const std::vector<Action>& actions_of(int slot) const { return schedule_.devices[device_of(slot)]; }
  [[nodiscard]] bool is_done(int slot) const { return standings_[slot].position >= actions_of(slot).size(); }
  [[nodiscard]] std::string name_of(int slot) const;
  [[nodiscard]] std::optional<int> waits_for(int slot) const;       // another slot of this process
  [[nodiscard]] std::optional<int> missing_in_sum(int slot) const;  // who keeps a sum over the replicas open
  [[nodiscard]] std::string end_of_waits(int slot) const;
  [[nodiscard]] std::string draw_replica(int replica, std::optional<int> failed_device) const;

  const Schedule& schedule_;
  std::vector<int> owners_;  // [stage]
  std::vector<Standing> standings_;
};

}  // namespace sluice::pipeline
