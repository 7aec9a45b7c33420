// server: a parameter server without its network: the weights, the optimizer and the rule by which pushes change them.
// The server owns learning rate, weight decay, clip norm and momentum; workers send what they have computed.
//   - Gradients are mixed by the policy's weights into one gradient of the mean loss, clipped by its norm over all
//     shards, and applied by the optimizer. Deltas use the outer optimizer. Weights are mixed without one.
//   - Gradients and deltas come with the change of the worker's running statistics since its pull. The mean change by
//     examples is added to the server's statistics. Statistics of pushed weights are mixed like them.
//   - A push counts once. A push with invalid numbers (not finite, or negative counts) is refused and changes nothing.
//   - Other servers may keep some of the shards. This server, the lead, keeps the first shards and the statistics. It
//     decides on an update before any shard changes (OnDecision); the others follow.
// Threads: one; ServerOptions::threads help with large shards. Errors: BugError for tensors of another layout or kind.
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

struct ServerProgress {
  std::int64_t version = 0;   // of the weights: number of updates made
  std::int64_t examples = 0;  // in all these updates
};

struct ServerOptions {
  SyncPolicy policy;
  optim::OptimizerOptions optimizer;  // with deltas: the outer optimizer
  std::function<double(const ServerProgress&)> lr;
  double clip_norm = 0;                   // 0: no clipping
  int threads = 1;                        // threads that work on shards in parallel (shard_set.h)
  std::vector<OtherShards*> others = {};  // servers of the later shards, in order; must outlive this
};

// An update with all values that determine it. After the update the other fields are set for the records.
struct UpdateRecord {
  Update update;
  double lr = 0;
  double gradient_norm = 0;  // before clipping; 0 if nothing is clipped
  double other_squares = 0;  // squares of the sums in the shards of other servers, part of that norm
  // Finite pushes gave a result that is not finite. Weights, optimizer and statistics are unchanged.
  bool is_dropped = false;
};

// Called before anything changes.
using OnDecision = std::function<void(const UpdateRecord&)>;

// Read-only weights of this server's shards. While the tensors are held, updates write into other memory.
struct Weights {
  std::int64_t version = 0;
  Tensors tensors;
};

// A fixed state from which a server can be restored, by the names of its layout and optimizer.
struct ServerState {
  ServerProgress progress;
  Tensors weights;
  NamedStates optimizer;
  std::map<WorkerId, int> incarnations;  // [worker]: how often it has joined
};

class Server {
 public:
  // values: [parameter of the layout], flat; other servers get theirs separately. progress: of a resumed run.
  Server(const Layout& layout, const std::vector<at::Tensor>& values, const at::Tensor& statistics,
         ServerOptions options, const ServerProgress& progress = {});

  // Requires that no worker has joined.
  void resume_from(const ServerState& state);

  // Both repeat, in the order of an earlier server's log and before any worker joins, what that server did, and take
  // ownership of the tensors. restore_push() adds a push that waits for its update.
  [[nodiscard]] UpdateRecord redo(Update update, std::vector<Tensors> pushed, double lr, double other_squares = 0);
  void restore_push(const PushRecord& record, Tensors pushed, Nanoseconds now);

  int join(WorkerId worker, Nanoseconds now) { return coordinator_.join(worker, now); }
  void leave(WorkerId worker, Nanoseconds now) { coordinator_.leave(worker, now); }
  void open(Nanoseconds now) { coordinator_.open(now); }
  std::int64_t begin(WorkerId worker) { return coordinator_.begin(worker); }
  std::int64_t begin_again(WorkerId worker) { return coordinator_.begin_again(worker); }
  // Registers an incarnation that an earlier server began. Requires that it has not joined this server.
  void remember_incarnation(const PushKey& push) { coordinator_.remember_incarnations(push.worker, push.incarnation); }
  [[nodiscard]] std::int64_t last_committed(WorkerId worker, int incarnation) const {
    return coordinator_.last_committed(worker, incarnation);
  }
  [[nodiscard]] bool may_begin(WorkerId worker) const { return coordinator_.may_begin(worker); }
  [[nodiscard]] std::optional<Nanoseconds> due_at() const { return coordinator_.due_at(); }

  // pushed: this server's shards. The server owns their memory; the caller may read it until advance().
  [[nodiscard]] PushAnswer push(const PushRecord& record, Tensors pushed, Nanoseconds now);
  std::vector<UpdateRecord> advance(Nanoseconds now, const OnDecision& on_decision = {});

  [[nodiscard]] Weights weights() const;
  [[nodiscard]] ServerState state() const;
  [[nodiscard]] const ServerProgress& progress() const { return progress_; }
  [[nodiscard]] const std::map<WorkerId, Tensors>& waiting() const { return waiting_; }
  [[nodiscard]] const SyncPolicy& policy() const { return options_.policy; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] const std::vector<OtherShards*>& others() const { return options_.others; }
  [[nodiscard]] const TensorsShape& shape() const { return shape_; }

 private:
  // Whether other servers take part in an update or only register it.
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
  std::map<WorkerId, Tensors> waiting_;
  std::vector<Tensors> merging_;
};

}  // namespace sluice::ps
