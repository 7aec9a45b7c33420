// pass_report: describes a pass that failed or hangs: what each slot does and which slot it waits for. A slot is a
// device of a replica, numbered [replica][device].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

enum class Wait : std::uint32_t {
  kNothing,
  kMessage,    // from another stage
  kReplicas,   // other replicas, in a sum over the replicas of its device
  kProcesses,  // other processes, in such a sum, on behalf of its process
};

struct Standing {
  std::uint32_t position = 0;  // of the current action; the number of actions if all are done
  Wait wait = Wait::kNothing;
};

class PassReport {
 public:
  // standings: [slot]. Requires: a validated schedule that outlives the report.
  PassReport(const Schedule& schedule, std::vector<Standing> standings);

  // Null after the last action.
  [[nodiscard]] const Action* action_at(int slot) const {
    return is_done(slot) ? nullptr : &actions_of(slot)[standings_[slot].position];
  }
  // "replica 0 stage 1 at action 1F0 (1 of 8, micro-batch 0)".
  [[nodiscard]] std::string describe_action(int slot) const;
  // describe_action() and, if the slot waits, ", which waits for replica 0 stage 0".
  [[nodiscard]] std::string describe(int slot) const;
  // Names the slot that the others wait for, or the cycle of slots that wait for each other; empty without a wait.
  [[nodiscard]] std::string describe_waits() const;
  [[nodiscard]] bool waits_for_processes() const;

  // The schedule with the current actions marked: of the replica that failed at `slot`, or of each unfinished replica.
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
  [[nodiscard]] std::optional<int> missing_in_sum(int slot) const;  // the slot that holds up a sum over the replicas
  [[nodiscard]] std::string end_of_waits(int slot) const;
  [[nodiscard]] std::string draw_replica(int replica, std::optional<int> failed_device) const;

  const Schedule& schedule_;
  std::vector<int> owners_;  // [stage]
  std::vector<Standing> standings_;
};

}  // namespace sluice::pipeline
