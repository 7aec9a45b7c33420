// virtual_cluster: workers and their server in virtual time: the real server, its policy and the real gradients, one
// worker after the other in one process, while a clock that only this module turns is charged what each would take. So
// there may be more workers than cores, and a repeat gives the same bits.
// A worker's step takes: pull (bytes, as they travel, / bandwidth), a stall (stragglers.h), then for each slice of n
// samples step_s + n * sample_s, until the deadline (slice_clock.h), then push. Threads: one. Errors: those of what
// computes; DivergedError for a push that is not finite.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/clock.h"
#include "ps/policy/slice_clock.h"
#include "ps/policy/stragglers.h"
#include "ps/virtual_link.h"

namespace sluice::ps {

struct VirtualUpdate {
  UpdateRecord done;
  std::vector<PushDone> pushes;  // in the order of done.update.pushes
  Nanoseconds at = 0;            // virtual time since the beginning
};

struct VirtualOptions {
  std::vector<WorkerCosts> workers;  // [worker]
  StragglerOptions stragglers;
  LinkCompression compression;
};

class VirtualCluster {
 public:
  // Runs a step of this worker, number `step` of its own, whose sync pulls from its link and pushes to it, and asks
  // the clock for each slice before it runs.
  using Compute = std::function<void(WorkerId, std::int64_t step, SliceClock&)>;

  // The server outlives it; nobody has joined it yet.
  VirtualCluster(Server& server, VirtualOptions options, Compute compute);

  [[nodiscard]] std::shared_ptr<VirtualLink> link(WorkerId worker) const { return workers_[index_of(worker)].link; }
  // Goes on until an update is made.
  [[nodiscard]] VirtualUpdate next_update();
  [[nodiscard]] Nanoseconds now() const { return now_; }

 private:
  struct Worker {
    std::shared_ptr<VirtualLink> link;
    std::int64_t steps = 0;
    Nanoseconds idle_since = 0;
    Nanoseconds arrives = -1;  // its push; -1: it is not under way
    Push push;
  };
  struct Delivered {
    PushScores scores;
    PushTimes times;
    std::int64_t bytes = 0;
  };

  static std::size_t index_of(WorkerId worker) { return static_cast<std::size_t>(worker); }
  void begin_ready_workers();
  void begin(WorkerId id);
  void advance_to_next_event();
  void deliver(Worker& worker);
  [[nodiscard]] VirtualUpdate as_virtual_update(UpdateRecord done);

  Server& server_;
  VirtualOptions options_;
  Stragglers stragglers_;
  Compute compute_;
  std::vector<Worker> workers_;
  std::vector<UpdateRecord> ready_;   // made, and not returned yet
  std::vector<Delivered> delivered_;  // [worker]: of its last push
  Nanoseconds now_ = 0;
};

}  // namespace sluice::ps
