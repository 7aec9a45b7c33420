// liveness: detects which processes of a run are alive. A thread in each process exchanges heartbeats with rank 0 over
// a control connection. If the connection ends, the process died; if heartbeats stop, it hangs, is stopped or has lost
// its network. A process that fails sends the reason itself. All processes report the same loss, the first. Pauses of
// this process do not count. The connections are not encrypted. Rank 0 listens on World::address only and accepts each
// rank once, with the token that `publish` carried.
// Threads: any. The control thread calls `on_lost`, which must be brief and not throw or use this object.
// Errors of the constructor, within LivenessOptions::connect_timeout: PeerError with the ranks that did not connect, in
// rank 0 and all connected ranks, or if rank 0 cannot be reached; ConfigError as in socket_address.h.
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

// How rank 0 passes its address to the others over an existing channel. Each function is called once.
struct MeetingPoint {
  std::function<void(const std::string& text)> publish;  // rank 0
  std::function<std::string()> look_up;                  // other ranks: blocks until the text is there; may throw
};

class Liveness {
 public:
  // Returns when every process is connected. on_lost is called at most once, until leave() or the destructor returns,
  // and not for this process's own fail(). It ends before the other members report the loss.
  Liveness(const World& world, const MeetingPoint& meeting, const LivenessOptions& options,
           std::function<void(const LostProcess&)> on_lost);
  // Takes at most a second. The others see a death unless leave() or fail() came before.
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // This process ends as planned. Rank 0 keeps watching until all others have left, for at most
  // LivenessOptions::drain_timeout. Returns early if a process is lost.
  void leave();

  // This process ends with an error. The others receive `why`, unless another loss came first. Returns when they have,
  // or after a second. Requires, for an error of a backend, that wait_for_lost() has returned no loss.
  void fail(const std::string& why);
  // Like fail(), for a process that was asked to stop before there was anything to save.
  void stop(const std::string& why);

  [[nodiscard]] std::optional<LostProcess> wait_for_lost(std::chrono::milliseconds limit) const;

 private:
  class ControlThread;

  std::unique_ptr<ControlThread> thread_;  // null if there is one process
};

}  // namespace sluice::comm
