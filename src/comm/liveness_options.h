// liveness_options: how patient the processes of a run are with each other.
#pragma once

#include <chrono>

namespace sluice::comm {

struct LivenessOptions {
  std::chrono::milliseconds heartbeat{1000};
  // After which a process counts as hung: never earlier, and a heartbeat later at most. At least three heartbeats.
  std::chrono::milliseconds silence{10000};
  std::chrono::milliseconds connect{60000};   // until every process is connected
  std::chrono::milliseconds farewell{60000};  // how long rank 0 stays for those who have not left yet
};

}  // namespace sluice::comm
