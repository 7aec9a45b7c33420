// server_step: predicts a step of a parameter server's workers, which are all alike: compute, push, update, pull. With
// W workers:
// - If an update needs every worker's push (bsp), transfers pass the server's network one after another. The worker
//   that pulls first also pushes first. So a step is: compute, the update, W times the longer of push and pull, once
//   the shorter. If the other workers' shorter transfers outlast the compute, it is W pushes, the update, W pulls.
// - If each push makes an update (asp, ssp), the server handles one push at a time: receive, update, send. Workers wait
//   only if W times this exceeds their own cycle; then a step is W times this.
// - k servers handle 1 / k of the bytes each, in parallel, and exchange six messages in sequence per update.
// - If all processes share the cores of one machine, a step takes at least their total work divided by the cores.
// Workers that differ: ps/policy/uneven_workers.h. Pure. Units: seconds, bytes.
#pragma once

#include "core/server_cost.h"

namespace sluice::tune {

struct ServerUse {
  ServerCost cost;
  int workers = 1;
  int servers = 1;
  bool waits_for_all = true;  // an update needs a push of every worker; otherwise each push makes one
  bool goes_ahead = true;     // a push sends bucket by bucket during the backward; otherwise at its end
  double deviation = 0;       // of a worker's compute, as StepOverheads::deviation
  int cores = 0;              // shared by all workers and servers; 0: each worker has its own machine
  int threads = 1;

  [[nodiscard]] int pushes_of_update() const { return waits_for_all ? workers : 1; }
  // Link for one push, by its bytes over all servers.
  [[nodiscard]] LinkCost push_link() const;
};

struct WorkerStep {
  double computing = 0;  // until the last gradient is complete, including contention for cores
  double pushing = 0;    // time after `computing` until all bytes are sent
  double bytes = 0;
  double loading = 0;  // preparing the next batch, in parallel with the weights' return
  double slowest = 0;  // extra compute time of the slowest worker
};

// Together with WorkerStep::computing they add up to a worker's step.
struct ServedStep {
  double push = 0;
  double update = 0;
  double pull = 0;
  double load = 0;  // not hidden by the pull
  double wait = 0;  // for other workers' compute and bytes, or for cores

  [[nodiscard]] double seconds() const { return push + update + pull + load + wait; }
};
[[nodiscard]] ServedStep served_step(const ServerUse& use, const WorkerStep& worker);

}  // namespace sluice::tune
