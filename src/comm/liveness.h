// liveness: which processes of a run live. A thread of each process exchanges heartbeats over a connection of its own
// with rank 0: its end means that a process died, silence that it hangs, is stopped or cut off, and who fails says
// why. The first loss is the one that all processes hear of. Time in which this process itself was stopped counts for
// nobody.
// Not here: a step that hangs while its process lives (the executor's time limit); what a backend's error means: it
// says that somebody is lost, and wait_for_lost() who.
// Network: a few short lines go over the connections; nothing is encrypted. Rank 0 listens on World::address alone,
// and lets in only who knows the token that `publish` carried, once for each rank.
// Threads: the members from any thread; `on_lost` comes from the control thread, must be brief, and must neither
// throw nor call members nor destroy this object.
// Errors: the constructor's, within LivenessOptions::connect_timeout: PeerError (ranks that did not connect, by number,
// in rank 0 and in all that did; rank 0 cannot be reached), ConfigError (as socket_address.h). Later ones are losses.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/liveness_options.h"
#include "comm/lost_process.h"
#include "comm/world.h"

namespace sluice::comm {

// How rank 0 tells the others where it listens, through what the processes already share. Each call once.
struct MeetingPoint {
  std::function<void(const std::string& text)> publish;  // rank 0
  std::function<std::string()> look_up;                  // the others: the text, as soon as it is there; may throw
};

class Liveness {
 public:
  // Returns when every process is connected. on_lost: at most once, and not for this process's own fail(). It may come
  // until leave() or the destructor has returned, and is over before the other members know of the loss.
  Liveness(const World& world, const MeetingPoint& meeting, const LivenessOptions& options,
           std::function<void(const LostProcess&)> on_lost);
  // Within a second. To the others this is a death unless leave() or fail() came before.
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // This process ends as planned: that it goes is no loss. Rank 0 keeps watch until all others have left, for at most
  // LivenessOptions::drain_timeout; after that nobody is watched any more. Returns early when somebody is lost:
  // wait_for_lost(0) says who.
  void leave();

  // This process ends with an error: the others hear why, unless another loss came first. Returns when they have, or
  // after a second at most. Requires: for an error of a backend, wait_for_lost() has not named anybody.
  void fail(const std::string& why);
  // The same for a process that was asked to stop before there was anything to save.
  void stop(const std::string& why);

  // The loss, if there is one or one comes within `limit`.
  [[nodiscard]] std::optional<LostProcess> wait_for_lost(std::chrono::milliseconds limit) const;

 private:
  class ControlThread;

  std::unique_ptr<ControlThread> thread_;  // null: there are no others
};

}  // namespace sluice::comm
