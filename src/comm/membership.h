// membership: the processes of an elastic run (replicas.elastic): which of them live, and how those that are left form
// the next group (regroup.h). A thread watches the other processes (control_mesh.h): if a connection ends, its process
// died; if heartbeats stop, it hangs or has lost its network.
// Threads: any. The thread calls on_disturbed, which must be brief and not throw or use this object.
// Errors of the constructor: those of ControlMesh.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/control_mesh.h"
#include "comm/liveness_options.h"
#include "comm/regroup.h"
#include "comm/world.h"
#include "core/clock.h"

namespace sluice::comm {

struct Loss {
  int member = 0;
  std::string host, cause;
  double silent_ms = 0;     // between its last sign of life and its loss
  Nanoseconds lost_at = 0;  // clock of this process
};

class Membership {
 public:
  // world: of group 0, in which each rank is a member. on_disturbed: training must stop, once for each group.
  Membership(const World& world, const NoticeBoard& board, const LivenessOptions& options,
             std::function<void()> on_disturbed);
  // The others see a death unless leave() or fail() came before.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  [[nodiscard]] int self() const;
  [[nodiscard]] bool is_disturbed() const;
  // Waits, at most so long, until training must stop. False if it need not.
  [[nodiscard]] bool wait_for_disturbance(std::chrono::milliseconds limit) const;
  // The members that were lost since the last call, or since the start.
  [[nodiscard]] std::vector<Loss> take_losses();

  // This process has stopped training after `steps_done` steps; kNoState if its state is not whole. Returns the next
  // group. PeerError if this process cannot go on.
  [[nodiscard]] Group regroup(std::int64_t steps_done);

  // The leader's text for the others of its group. hear() blocks; PeerError if the group is disturbed meanwhile.
  void tell(const std::string& text);
  [[nodiscard]] std::string hear();

  // This process ends as planned. Returns when all others have left or are gone, or after a few seconds.
  void leave();
  // This process ends with an error, which the others log.
  void fail(const std::string& why);

 private:
  class ControlThread;
  std::unique_ptr<ControlThread> thread_;
};

}  // namespace sluice::comm
