// membership: the processes of an elastic run (replicas.elastic): which of them live, and how those that are left or
// join form the next group (regroup.h). A thread watches the other processes (control_mesh.h): if a connection ends,
// its process died; if heartbeats stop, it hangs or has lost its network. Threads: any. The thread calls on_disturbed,
// which must be brief and not throw or use this object. Errors of the constructors: those of ControlMesh.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
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

struct Newcomer {
  int member = 0;
  std::string host;
  Nanoseconds arrived_at = 0;  // when it connected to this process; clock of this process
};

// How the group has changed.
struct GroupNews {
  [[nodiscard]] bool is_empty() const { return lost.empty() && joined.empty(); }
  void add(GroupNews more) {
    std::ranges::move(more.lost, std::back_inserter(lost));
    std::ranges::move(more.joined, std::back_inserter(joined));
  }

  std::vector<Loss> lost;
  std::vector<Newcomer> joined;  // others than this process
};

class Membership {
 public:
  // All ranks of `world` form group 0. on_disturbed: training must stop, once for each group.
  Membership(const World& world, const NoticeBoard& board, const LivenessOptions& options,
             std::function<void()> on_disturbed);
  // A guest, which joins with regroup(kNoState).
  Membership(const World& world, const Invitation& invitation, const LivenessOptions& options,
             std::function<void()> on_disturbed);
  // The others see a death unless leave() or fail() came before.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  [[nodiscard]] int self() const;
  [[nodiscard]] Invitation invitation() const;  // to a guest, from this process

  [[nodiscard]] bool is_disturbed() const;
  // Waits, at most so long, until training must stop. False if it need not.
  [[nodiscard]] bool wait_for_disturbance(std::chrono::milliseconds limit) const;
  // Since the last call, or since the start.
  [[nodiscard]] GroupNews take_news();
  // True in one process only, while guests wait. They join once all members call regroup().
  [[nodiscard]] bool has_guests() const;
  // Counts a member as lost, because the others cannot connect to it.
  void dismiss(int member);

  // This process has stopped training after `steps_done` steps; kNoState if its state is not whole. Returns the next
  // group, once all of its processes have stopped. PeerError if this process cannot go on, or after 30 minutes.
  [[nodiscard]] Group regroup(std::int64_t steps_done);

  // The text of rank 0 for the others of its group. PeerError if the group is disturbed while this process waits.
  void publish_text(const std::string& text);
  [[nodiscard]] std::string wait_for_text();

  // This process ends as planned. Returns when all others have left or are gone, or after 5 s.
  void leave();
  // This process ends with an error, which the others log. Returns when they have received it, or after a second.
  void fail(const std::string& why);
  // Like fail(), for a process that was asked to stop before training: all processes end for that reason.
  void stop(const std::string& why);
  [[nodiscard]] std::optional<std::string> why_stopped() const;

 private:
  class ControlThread;
  std::unique_ptr<ControlThread> thread_;
};

}  // namespace sluice::comm
