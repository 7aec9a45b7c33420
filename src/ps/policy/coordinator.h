// coordinator: decides, from who is there and what was pushed, when an update is due, which pushes are in it, and which
// worker may begin its next step. It holds no tensor, has no thread and reads no clock: whoever owns it says what
// happens and when, so that the same decisions are made in a server and in virtual time.
// - A worker's clock counts its pushes. One that joins begins at the clock of the slowest there is; one that comes back
//   keeps its own as far as the bound lets it.
// - A worker may begin when nothing of its own waits for an update and it is at most `staleness` pushes ahead of the
//   slowest that is there. So it sees its own last push in the weights it begins with. It pushes what it has begun.
// - An update is due when pushes of a quorum of the workers that are there wait, and everybody has pushed or the grace
//   window is over. A push of a worker that has left since is in it, but counts for no quorum.
// - Before the first update, SyncPolicy::workers have to have joined; open() does without the rest.
// - A push counts once, however often it arrives, also when its worker has left or come back in between.
// Threads: one. Errors: BugError for a worker that joins twice, leaves without having joined, or begins when it may
// not.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "ps/policy/push_record.h"
#include "ps/policy/sync_policy.h"

namespace sluice::ps {

// Pushes that make one update together; in the order of their workers, whatever the order in which they came.
struct Update {
  std::int64_t version = 0;  // of the weights that come of it
  std::vector<PushRecord> pushes;
};

class Coordinator {
 public:
  // version: of the weights there are.
  explicit Coordinator(const SyncPolicy& policy, std::int64_t version = 0);

  // That worker has had at least this many incarnations: the next one is a later one. What it pushed in them is
  // unknown.
  void remember_incarnations(WorkerId worker, int incarnations);
  [[nodiscard]] std::map<WorkerId, int> incarnations() const;  // how often each has joined

  // Sequence of the last push of an incarnation that was committed; 0: none is known.
  [[nodiscard]] std::int64_t last_committed(WorkerId worker, int incarnation) const;

  // Of an earlier coordinator's pushes, before anybody joins: the update that it made of them; one that waits for its
  // update, which is due at once where each push makes one.
  void redo(const Update& update);
  void restore_push(const PushRecord& record, Nanoseconds now);

  // Returns which incarnation of the worker begins; its pushes count from 1 again.
  int join(WorkerId worker, Nanoseconds now);
  void leave(WorkerId worker, Nanoseconds now);
  void open(Nanoseconds now);
  // Returns the version of the weights that it begins its step with. Requires: it may.
  std::int64_t begin(WorkerId worker);
  // The same step on the weights there are now: those that it was given have not reached it. Requires: it has begun.
  std::int64_t begin_again(WorkerId worker);
  [[nodiscard]] PushAnswer push(const PushRecord& record, Nanoseconds now);

  // The next update that is due at this time, to be made before anything else; nothing: none is.
  [[nodiscard]] std::optional<Update> take_update(Nanoseconds now);
  // When one will be due if nothing happens before.
  [[nodiscard]] std::optional<Nanoseconds> due_at() const;

  [[nodiscard]] bool may_begin(WorkerId worker) const;
  [[nodiscard]] int workers() const { return here_; }         // that are there
  [[nodiscard]] std::optional<std::int64_t> slowest() const;  // the least clock of those; nothing: nobody is there

 private:
  struct Worker {
    bool is_here = false;
    std::int64_t clock = 0;
    std::optional<std::int64_t> begun;         // on weights of this version, and not pushed yet
    std::vector<std::int64_t> last_committed;  // [incarnation - 1]: sequence of its last push that was committed
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
  std::map<WorkerId, Worker> workers_;      // all that ever were there
  std::map<WorkerId, PushRecord> waiting_;  // for their update
  // Of the workers that are there, kept up so that a push among thousands of workers costs no walk over them.
  int here_ = 0;
  int waiting_here_ = 0;
  std::map<std::int64_t, int> clocks_here_;  // clock: workers
  std::optional<Nanoseconds> quorum_since_;  // nothing: there is none
};

}  // namespace sluice::ps
