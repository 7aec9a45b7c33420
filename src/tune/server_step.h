// server_step: what a parameter server adds to the steps of its workers, which all are alike. A cycle of a worker is:
// compute, push, the server's update, pull.
// - Where an update takes a push of every worker (bsp), the server's end of the network carries the bytes of one after
//   the other, in both directions. Who gets its weights first also begins, and pushes, first: of all W workers the
//   longer one of a push and a pull counts W times, the other once; both do where that is longer than computing.
// - Where each push makes an update (asp, ssp), workers come to the server one by one, which takes what it is busy with
//   a push: its bytes, the update, the bytes of the weights. While W of them compute long enough nobody waits; else the
//   server is what holds them up, and a cycle is W times what it is busy.
// - k servers have 1 / k of the bytes each, all at once. Between a push and its weights server 0 and the others send
//   each other six messages, one after the other: they hold their parts, prepare, are prepared, make the update, have
//   made it, and hear whom the weights are for.
// - Where all processes share the cores of one machine, a cycle of such workers is at least the work of all of them
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

// They add up to a cycle, with what the worker computes.
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
