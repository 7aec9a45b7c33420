// liveness_options: intervals and timeouts between the processes of a run.
#pragma once

#include <chrono>

namespace sluice::comm {

struct LivenessOptions {
  std::chrono::milliseconds heartbeat_interval{1000};
  // A process counts as hung after this time, at most one heartbeat later. Must be at least three heartbeats.
  std::chrono::milliseconds peer_timeout{10000};
  std::chrono::milliseconds connect_timeout{60000};  // until every process is connected
  std::chrono::milliseconds drain_timeout{60000};    // how long rank 0 waits for other ranks to leave
};

}  // namespace sluice::comm
