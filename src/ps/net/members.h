// members: the workers that server 0 has admitted, their states, and what a Hello means for them. Pure. Threads: one.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "data/ledger.h"
#include "ps/net/messages.h"
#include "ps/net/push_assembly.h"
#include "ps/pull_compressor.h"

namespace sluice::ps {

// States of a worker from its admission to its removal (docs/explanation/ps_protocol.md).
enum class WorkerState {
  kWaiting,   // until the policy lets it begin its next step; it may have the lease of that step already
  kTraining,  // has the weights of its step; its push is expected
  kPushing,   // its push is here; parts of it at shard servers are missing
  kLeaving,   // has sent Leaving
};

struct OwnPart {  // this server's part of a push
  PushMade made;
  Tensors tensors;

  [[nodiscard]] PushKey key() const { return made.record.key(); }
};

struct Member {
  WorkerId id{};
  std::string routing_id;
  std::string process_id;
  std::string where;
  std::int64_t batch = 1;  // samples per lease
  Incarnation incarnation;
  Nanoseconds last_message_at = 0;
  std::optional<data::Lease> lease;  // for the current or next step
  std::int64_t version = kNone;      // version of the weights that it received for that step
  std::int64_t pushed = 0;           // sequence of its last committed push
  PullCompressor pull;               // of this server's shards
  PushAssembly ahead;
  std::optional<OwnPart> own_part;  // of its newest push, until all shard servers hold theirs
  // Set after Leaving. A signal that stops the whole run also stops this server: the removal is delayed, because no
  // update must be made without the worker in between.
  std::optional<Nanoseconds> leaves_at;

  [[nodiscard]] WorkerState state() const {
    if (leaves_at) return WorkerState::kLeaving;
    if (version == kNone) return WorkerState::kWaiting;
    return own_part ? WorkerState::kPushing : WorkerState::kTraining;
  }
  [[nodiscard]] bool has_sent(std::int64_t push) const {
    return push <= pushed || (own_part && own_part->made.record.sequence == push);
  }
  [[nodiscard]] std::int64_t lease_id() const { return lease ? static_cast<std::int64_t>(lease->id) : kNone; }
  [[nodiscard]] PushKey key_of(std::int64_t sequence) const {
    return {id, static_cast<int>(incarnation.number), sequence};
  }
};

enum class Greeting {  // what a Hello means
  kNew,                // the worker is absent
  kAfterLeaving,       // the worker has left; its removal was delayed
  kRepeated,           // this process was admitted already, but may have missed its Welcome
  kAnew,               // this process abandons its current incarnation
  kRival,              // another process has the worker's number and is alive
  kReplacement,        // another process had the worker's number and is silent
};

class Members {
 public:
  // now: when the server began; silence_of_dead: after it another process may replace a worker's process.
  Members(Nanoseconds now, Nanoseconds silence_of_dead) : empty_since_(now), silence_of_dead_(silence_of_dead) {}

  [[nodiscard]] Greeting judge(const Hello& hello) const;
  Member& add(Member member);
  void remove(WorkerId worker, bool has_left, Nanoseconds now);

  [[nodiscard]] std::map<WorkerId, Member>& all() { return members_; }
  [[nodiscard]] Member* find(WorkerId worker);
  [[nodiscard]] Member* find_by_connection(const std::string& routing_id);
  // Whether the number of this incarnation belongs to an earlier server epoch. Requires that the worker was admitted.
  [[nodiscard]] bool is_before_this_epoch(WorkerId worker, std::int64_t incarnation) const {
    return incarnation < first_incarnations_.at(worker);
  }

  // Messages that arrived before this time have been handled.
  void set_drained_at(Nanoseconds at) { drained_at_ = at; }
  [[nodiscard]] Nanoseconds silence_of(const Member& member) const { return drained_at_ - member.last_message_at; }
  [[nodiscard]] std::vector<WorkerId> all_that(const std::function<bool(const Member&)>& condition) const;

  [[nodiscard]] bool empty() const { return members_.empty(); }
  [[nodiscard]] Nanoseconds empty_since() const { return empty_since_; }  // last removal, or the begin
  [[nodiscard]] bool last_one_left() const { return last_one_left_; }     // the last removed one had sent Leaving

 private:
  std::map<WorkerId, Member> members_;
  std::map<WorkerId, std::int64_t> first_incarnations_;  // [worker]: its first incarnation at this server
  Nanoseconds drained_at_ = 0;
  Nanoseconds empty_since_;
  Nanoseconds silence_of_dead_;
  bool last_one_left_ = false;
};

}  // namespace sluice::ps
