// server: a parameter server without its network: the weights, the optimizer and the one rule by which pushes change
// them. The server owns learning rate, weight decay, clip norm and momentum; workers send what they have computed.
// - Gradients: mixed by the policy's weights into one gradient of the mean loss, clipped by its norm over all shards,
//   then an optimizer step. Deltas likewise, with the outer optimizer. Weights are mixed in without an optimizer.
// - Gradients and deltas come with what has changed in the worker's running statistics since it pulled them: their mean
//   by examples is added to the server's. Weights come with the statistics, which are mixed by the same numbers.
// - A push counts once: what was committed before is a duplicate, and changes nothing.
// - A push with numbers that cannot be (not finite, fewer than no examples) is refused, and changes nothing.
// - Other servers may keep some of the shards. This one, the lead, keeps the first ones and the statistics. It decides
//   when an update is made, before any shard changes (OnDecision); the others do what it tells them.
// Not here: sockets, logs on disk, a clock: the owner says what happens and when.
// Threads: one, which others help with the passes over large shards (ServerOptions::threads). Errors: BugError for
// tensors of another layout or kind.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "optim/optimizer.h"
#include "ps/layout.h"
#include "ps/other_shards.h"
#include "ps/policy/coordinator.h"
#include "ps/shard_set.h"

namespace sluice::ps {

// Where a run stands, by updates and by what they were made of.
struct ServerProgress {
  std::int64_t version = 0;   // of the weights: updates made
  std::int64_t examples = 0;  // in all of them
};

struct ServerOptions {
  SyncPolicy policy;
  optim::OptimizerOptions optimizer;                // of deltas: the outer one
  std::function<double(const ServerProgress&)> lr;  // of the next update
  double clip_norm = 0;                             // 0: none
  int threads = 1;                                  // that work on shards at once (shard_set.h)
  std::vector<OtherShards*> others = {};            // of the layout's later shards, in their order; they outlive it
};

// An update, with all that decides it; once it is made also for the records.
struct UpdateRecord {
  Update update;
  double lr = 0;
  double gradient_norm = 0;  // before clipping; 0 where nothing is clipped
  double other_squares = 0;  // of the sums in the shards of other servers, for that norm
  // What came of finite pushes is not finite: weights, optimizer and statistics are as they were.
  bool is_dropped = false;
};

// Hears of an update that is about to be made, before anything changes.
using OnDecision = std::function<void(const UpdateRecord&)>;

// Weights of one version, of the shards here, which stay as they are: no copies, but for the statistics. The server
// makes its next update in other memory where they are still held, and in place where nobody has them any more. Nobody
// may write into them.
struct Weights {
  std::int64_t version = 0;
  Tensors tensors;
};

// All that a server is made of again, by the names of its layout and optimizer. It stays as it is.
struct ServerState {
  ServerProgress progress;
  Tensors weights;
  NamedStates optimizer;
  std::map<WorkerId, int> incarnations;  // how often each has joined
};

class Server {
 public:
  // values: [parameter of the layout], flat; the other servers get theirs from somebody else. progress: of a run that
  // goes on.
  Server(const Layout& layout, const std::vector<at::Tensor>& values, const at::Tensor& statistics,
         ServerOptions options, const ServerProgress& progress = {});

  // Goes on from an earlier server's optimizer and workers; values and progress are the constructor's.
  // Requires: nobody has joined.
  void resume_from(const ServerState& state);

  // Goes on where the log of an earlier one says more, in the same order, before anybody joins: an update that it made
  // of these pushes at this rate, and a push that waited for its update. pushed: the server's from now on, and as
  // push() took them. The other servers are only to remember it.
  [[nodiscard]] UpdateRecord redo(Update update, std::vector<Tensors> pushed, double lr, double other_squares = 0);
  void restore_push(const PushRecord& record, Tensors pushed, Nanoseconds now);

  // As Coordinator has them.
  int join(WorkerId worker, Nanoseconds now) { return coordinator_.join(worker, now); }
  void leave(WorkerId worker, Nanoseconds now) { coordinator_.leave(worker, now); }
  void open(Nanoseconds now) { coordinator_.open(now); }
  std::int64_t begin(WorkerId worker) { return coordinator_.begin(worker); }
  std::int64_t begin_again(WorkerId worker) { return coordinator_.begin_again(worker); }
  // An incarnation of that worker was begun by an earlier server. Requires: it has not joined this one.
  void remember_incarnation(const PushKey& push) { coordinator_.remember_incarnations(push.worker, push.incarnation); }
  [[nodiscard]] std::int64_t last_committed(WorkerId worker, int incarnation) const {
    return coordinator_.last_committed(worker, incarnation);
  }
  [[nodiscard]] bool may_begin(WorkerId worker) const { return coordinator_.may_begin(worker); }
  [[nodiscard]] std::optional<Nanoseconds> due_at() const { return coordinator_.due_at(); }

  // pushed: this server's shards, whose memory is the server's from now on: the caller may read it until advance().
  [[nodiscard]] PushAnswer push(const PushRecord& record, Tensors pushed, Nanoseconds now);
  // Makes every update that is due.
  std::vector<UpdateRecord> advance(Nanoseconds now, const OnDecision& on_decision = {});

  [[nodiscard]] Weights weights() const;
  [[nodiscard]] ServerState state() const;
  [[nodiscard]] const ServerProgress& progress() const { return progress_; }
  // What was pushed and waits for an update.
  [[nodiscard]] const std::map<WorkerId, Tensors>& waiting() const { return waiting_; }
  [[nodiscard]] const SyncPolicy& policy() const { return options_.policy; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] const std::vector<OtherShards*>& others() const { return options_.others; }
  [[nodiscard]] const TensorsShape& shape() const { return shape_; }  // of what is pushed to this server

 private:
  // What the other servers have to do with an update.
  enum class Others { kTakePart, kRemember };

  [[nodiscard]] UpdateRecord make(Update update, double lr, Others others, double other_squares,
                                  const OnDecision& on_decision);
  void step(const ShardStep& step, Others others, UpdateRecord& done, const OnDecision& on_decision);
  [[nodiscard]] Prepared prepare(const ShardStep& step, Others others, UpdateRecord& done);
  void commit(const ShardStep& step, Others others, const ShardUpdate& update);
  void merge_statistics(const Mix& mix);

  Layout layout_;
  ShardRange own_;
  TensorsShape shape_;
  ServerOptions options_;
  Coordinator coordinator_;
  ServerProgress progress_;
  ShardSet shards_;
  at::Tensor statistics_;
  std::map<WorkerId, Tensors> waiting_;  // pushed, for an update to come
  std::vector<Tensors> merging_;         // of the update that is being made, in the order of its pushes
};

}  // namespace sluice::ps
