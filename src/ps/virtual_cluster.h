// virtual_cluster: workers and their server in virtual time. The server, its policy and the gradients are real. The
// workers run one after the other in one process, so there may be more workers than cores, and a repeated run gives the
// same bits. A step consists of the pull (sent bytes / bandwidth), a stall (stragglers.h), slices until the deadline
// (slice_clock.h), each step_s + n * sample_s for n samples, and the push.
// Threads: one. Errors: those of the computation; DivergedError if a push is not finite.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "ps/policy/slice_clock.h"
#include "ps/policy/stragglers.h"
#include "ps/policy/virtual_clock.h"
#include "ps/virtual_link.h"

namespace sluice::ps {

struct VirtualUpdate {
  UpdateRecord done;
  std::vector<PushDone> pushes;  // in the order of done.update.pushes
  Nanoseconds at = 0;
};

struct VirtualOptions {
  std::vector<WorkerCosts> workers;  // [worker]
  StragglerOptions stragglers;
  LinkCompression compression;
};

class VirtualCluster {
 public:
  // Runs step number `step` of this worker. Its sync pulls from and pushes to the worker's link; slices ask the clock.
  using Compute = std::function<void(WorkerId, std::int64_t step, SliceClock&)>;

  // `server` must outlive this object. Requires that no worker has joined it.
  VirtualCluster(Server& server, VirtualOptions options, Compute compute);

  [[nodiscard]] std::shared_ptr<VirtualLink> link(WorkerId worker) const { return workers_[index_of(worker)].link; }
  [[nodiscard]] VirtualUpdate next_update();
  [[nodiscard]] Nanoseconds now() const { return clock_.now(); }

 private:
  struct Worker {
    std::shared_ptr<VirtualLink> link;
    std::int64_t steps = 0;
    Nanoseconds idle_since = 0;
    std::optional<Push> push;  // computed, but not yet arrived
  };
  struct Delivered {
    PushScores scores;
    PushTimes times;
    std::int64_t bytes = 0;
  };

  static std::size_t index_of(WorkerId worker) { return static_cast<std::size_t>(worker); }
  void begin_ready_workers();
  void begin(WorkerId id);
  void deliver(WorkerId id);
  [[nodiscard]] VirtualUpdate as_virtual_update(UpdateRecord done);

  Server& server_;
  VirtualOptions options_;
  Stragglers stragglers_;
  Compute compute_;
  std::vector<Worker> workers_;
  std::vector<UpdateRecord> ready_;
  std::vector<Delivered> delivered_;  // [worker]: its last push
  VirtualClock clock_;
};

}  // namespace sluice::ps
