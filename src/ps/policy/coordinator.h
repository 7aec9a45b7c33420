// coordinator: decides when an update is due, which pushes it contains, and which worker may begin its next step. It
// holds no tensor, has no thread and reads no clock, so a server and virtual time make the same decisions.
//   - A worker's clock counts its pushes. A new worker starts with the clock of the slowest present worker. A worker
//     that returns keeps its own clock, within the staleness bound.
//   - A worker may begin if none of its pushes waits for an update and it is at most `staleness` pushes ahead of the
//     slowest present worker. The weights that it begins with therefore contain its own last push.
//   - An update is due if a quorum of the present workers has pushed, and either all have pushed or the grace window is
//     over. A push of a worker that has left since is included, but does not count for the quorum.
//   - Before the first update, SyncPolicy::workers workers must have joined; open() lifts this requirement.
//   - A push counts once, even if it arrives again or its worker has left or returned in between.
// Threads: one. Errors: BugError if a worker joins twice, leaves without having joined, or begins when it may not.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "ps/policy/push_record.h"
#include "ps/policy/sync_policy.h"

namespace sluice::ps {

// Pushes that make one update together, ordered by worker, not by arrival.
struct Update {
  std::int64_t version = 0;  // of the weights after the update
  std::vector<PushRecord> pushes;
};

class Coordinator {
 public:
  explicit Coordinator(const SyncPolicy& policy, std::int64_t version = 0);

  // The worker has had at least this many incarnations, with unknown pushes; its next one is later.
  void remember_incarnations(WorkerId worker, int incarnations);
  [[nodiscard]] std::map<WorkerId, int> incarnations() const;  // [worker]: how often it has joined

  // Sequence of the last committed push of an incarnation; 0: none is known.
  [[nodiscard]] std::int64_t last_committed(WorkerId worker, int incarnation) const;

  // Both repeat what an earlier coordinator did, before any worker joins. redo() repeats an update. restore_push() adds
  // a push that waits for its update. If one push makes an update, this update is due at once.
  void redo(const Update& update);
  void restore_push(const PushRecord& record, Nanoseconds now);

  int join(WorkerId worker, Nanoseconds now);
  void leave(WorkerId worker, Nanoseconds now);
  void open(Nanoseconds now);
  std::int64_t begin(WorkerId worker);
  // Restarts the step on the current weights, because the earlier ones did not reach the worker. Requires begin().
  std::int64_t begin_again(WorkerId worker);
  [[nodiscard]] PushAnswer push(const PushRecord& record, Nanoseconds now);

  // Returns the next update that is due at this time; nothing if none is due. Make it before any other call.
  [[nodiscard]] std::optional<Update> take_update(Nanoseconds now);
  [[nodiscard]] std::optional<Nanoseconds> due_at() const;

  [[nodiscard]] bool may_begin(WorkerId worker) const;
  [[nodiscard]] int workers() const { return here_; }
  [[nodiscard]] std::optional<std::int64_t> slowest() const;  // smallest present clock; nothing: no worker

 private:
  struct Worker {
    bool is_here = false;
    std::int64_t clock = 0;
    std::optional<std::int64_t> begun;         // version of the weights of a step that has begun without a push
    std::vector<std::int64_t> last_committed;  // [incarnation - 1]: sequence of its last committed push
  };

  void remember(const PushRecord& record);
  void forget_clock(std::int64_t clock);
  [[nodiscard]] std::int64_t clock_of_joining_worker(const Worker& worker) const;

  [[nodiscard]] bool is_waiting(WorkerId worker) const { return waiting_.contains(worker); }
  [[nodiscard]] bool has_quorum() const;
  void check_quorum(Nanoseconds now);

  SyncPolicy policy_;
  std::int64_t version_;
  bool is_open_ = false;
  std::map<WorkerId, Worker> workers_;  // all that have ever joined
  std::map<WorkerId, PushRecord> waiting_;
  // Counts of present workers, kept up to date so that a push needs no loop over thousands of workers.
  int here_ = 0;
  int waiting_here_ = 0;
  std::map<std::int64_t, int> clocks_here_;  // [clock]: number of workers
  std::optional<Nanoseconds> quorum_since_;  // nothing: no quorum
};

}  // namespace sluice::ps
