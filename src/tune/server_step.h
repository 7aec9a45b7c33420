// server_step: what a parameter server adds to a step of its workers, which are all alike. A worker's step is:
// compute, push, the server's update, pull. W workers:
// - An update takes a push of every worker (bsp): pushes pass the server's end of the network one after another, and
//   so do pulls. Whoever pulls first computes and pushes first, so a step is: computing, the update, W times the longer
//   of a push and a pull, once the shorter. If the other workers' shorter transfers outlast computing, the network is
//   never idle: W pushes, the update, W pulls.
// - Each push makes an update (asp, ssp): the server handles one push at a time: its bytes, the update, the weights'
//   bytes. While it keeps up nobody waits; else a step is W times that.
// - k servers have 1 / k of the bytes each, all at once. Between a push and its weights server 0 and the others send
//   each other six messages, one after the other: they hold their parts, prepare, are prepared, make the update, have
//   made it, and hear whom the weights are for.
// - Where all processes share the cores of one machine, a step of such workers is at least the work of all of them
//   divided by those.
// Not here: workers that differ (ps/policy/uneven_workers.h). Pure. Units: seconds, bytes.
#pragma once

#include "core/server_cost.h"

namespace sluice::tune {

struct ServerUse {
  ServerCost cost;
  int workers = 1;
  int servers = 1;
  bool waits_for_all = true;  // an update takes a push of every worker; else each push makes one
  bool goes_ahead = true;     // a push leaves bucket by bucket while backward runs; else at its end
  double deviation = 0;       // of a worker's computing, as StepOverheads::deviation
  int cores = 0;              // that all workers and servers share; 0: the workers have machines of their own
  int threads = 1;            // of a worker that computes

  [[nodiscard]] int pushes_of_update() const { return waits_for_all ? workers : 1; }
  // Of one push, by its bytes over all servers.
  [[nodiscard]] LinkCost push_link() const;
};

struct WorkerStep {
  double computing = 0;  // until its last gradient is whole, beside the others on the same cores
  double pushing = 0;    // after that, until its bytes have been sent
  double bytes = 0;      // of its gradients
  double loading = 0;    // preparing the next batch, while the weights are under way
  double slowest = 0;    // that the slowest of all workers needs more to compute
};

// With WorkerStep::computing they add up to a worker's step.
struct ServedStep {
  double push = 0;  // that no computing hides
  double update = 0;
  double pull = 0;
  double load = 0;  // that the pull does not hide
  double wait = 0;  // for other workers' computing and bytes, or for cores

  [[nodiscard]] double seconds() const { return push + update + pull + load + wait; }
};
[[nodiscard]] ServedStep served_step(const ServerUse& use, const WorkerStep& worker);

}  // namespace sluice::tune
