// shard_messages: what is said to and by a shard server (shard_server.h).
//
//   the lead server                          shard server                     worker
//   LeadHello (again and again)         ->
//                                       <-   ShardsHere
//   ShardsLoaded: what it is to have    ->
//                                       <-   ShardsHere
//   WorkerThere: who may push, and what ->
//     weights it begins with                 WeightsPart                 ->
//                                                                       <-    PushAhead, PartMade
//                                       <-   PartHeld
//   StepAsked: prepare                  ->
//                                       <-   StepPrepared
//   StepAsked: commit                   ->
//                                       <-   StepCommitted
//   StateAsked                          ->
//                                       <-   StateGiven
//   ShardsOver                          ->
//
// Messages may be lost, as in messages.h: questions are asked again, and done once; what is told of workers is counted,
// and told again as a whole where the counts differ; workers and servers send heartbeats, and ask for what they miss.
// From PartHeld to the next WorkerThere a worker waits for six of these: tune/server_step.h counts them. Values; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "comm/start.h"
#include "ps/net/frames.h"
#include "ps/net/messages.h"
#include "ps/shard_step.h"

namespace sluice::ps {

// Which shards of what.
struct Assignment {
  Layout layout;
  ShardRange range;

  [[nodiscard]] TensorsShape shape() const { return shape_of(layout, range); }
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

// --- From the lead server to a shard server.

struct LeadHello {
  std::int64_t protocol = kProtocol;
  std::int64_t greeting = 1;  // counts them; the same one may come again
  std::string process_id;     // of this process
  std::string where;
  comm::Agreement agreement;
  Assignment assignment;
};
struct ShardsLoaded {
  std::string run;  // tells runs apart, whatever their configuration
  std::int64_t version = 0;
  Assignment assignment;
  std::vector<std::string> states;  // names of the optimizer's
  std::int64_t steps_done = 0;      // of the update after that version
  // Tensors: the shards, then those of each state.
};
// Where a worker stands. With a version it begins with those weights.
struct WorkerThere {
  WorkerId worker{};
  std::int64_t incarnation = 0;
  std::string routing_id;  // its name at the socket; empty: it has gone
  std::int64_t version = kNone;
  bool is_again = false;          // it may not have got those that were sent last
  std::int64_t server_epoch = 0;  // in which that incarnation was counted (messages.h); so below
};
struct StepAsked {
  bool commits = false;  // the second half
  ShardStep step;
  ShardUpdate update;
};
struct PartAsked {
  PushKey push;
};
struct StateAsked {
  std::int64_t version = 0;
  bool begins_log = false;
};
struct LeadHeartbeat {
  std::int64_t greeting = 1;
  std::int64_t workers_sent = 0;  // how many WorkerThere since that greeting was answered
};
struct ShardsOver {
  std::int64_t code = 0;
  std::string what;
};

using FromLead =
    std::variant<LeadHello, ShardsLoaded, WorkerThere, StepAsked, PartAsked, StateAsked, LeadHeartbeat, ShardsOver>;

// --- From a worker to a shard server. PushAhead (messages.h) is one of these, too.

struct PartMade {
  PushKey push;
  std::int64_t first_shard = 0;  // of the layout
  bool is_ahead = false;         // its shards are
  std::int64_t server_epoch = 0;
  // Tensors: the shards, unless they are ahead.
};
struct PartHeartbeat {
  PushKey push;  // its last one; sequence 0: none yet
  std::int64_t server_epoch = 0;
};

using PartFromWorker = std::variant<PushAhead, PartMade, PartHeartbeat>;

// --- From a shard server to the lead server.

struct ShardsHere {
  std::string process_id;           // of this process
  std::string run;                  // whose shards it has; empty: it has none
  std::int64_t version = kNone;     // of them
  std::vector<PushKey> parts = {};  // of pushes, that it holds
  std::int64_t greeting = 1;        // that this answers
};
struct ShardsRefuse {
  std::string what;
};
struct StepPrepared {
  std::int64_t version = 0;
  std::int64_t index = 0;
  double squares = 0;
  bool is_finite = true;
};
struct StepCommitted {
  std::int64_t version = 0;
  std::int64_t index = 0;
};
struct StepLacking {  // a part of it, or the step before it
  std::int64_t version = 0;
};
struct PartHeld {
  PushKey push;
  bool is_finite = true;
};
struct StateGiven {
  std::int64_t version = 0;
  std::vector<std::string> states;
  // Tensors: as ShardsLoaded.
};
struct ShardHeartbeat {  // the answer to LeadHeartbeat
  std::string process_id;
  bool is_up_to_date = true;  // all that it was told
};
struct WhoLeads {};  // it does not know who asks
struct ShardsFailed {
  std::int64_t code = 0;
  std::string what;
};

using ShardsToLead = std::variant<ShardsHere, ShardsRefuse, StepPrepared, StepCommitted, StepLacking, PartHeld,
                                  StateGiven, ShardHeartbeat, WhoLeads, ShardsFailed>;

// --- From a shard server to a worker.

struct WeightsPart {
  std::int64_t incarnation = 0;  // of the worker
  std::int64_t version = 0;
  std::int64_t sequence = 1;  // these two as PackedWeights has them
  bool is_whole = true;
  std::int64_t first_shard = 0;  // of the layout
  std::int64_t server_epoch = 0;
  // Tensors: the shards.
};
struct WeightsHeartbeat {
  std::int64_t incarnation = 0;  // of the last WeightsPart
  std::int64_t version = kNone;
  std::int64_t server_epoch = 0;
};
struct PartWanted {
  PushKey push;
};

using ShardsToWorker = std::variant<WeightsPart, WeightsHeartbeat, PartWanted>;

// --- In a shard server's log (shard_log.h); the lead server that comes next learns of it (ShardsHere::parts), and
// counts no such incarnation again. Earlier logs have a PartMade there, which is read as one of these.

struct PartKept {
  PushKey push;
  // Tensors: the shards.
};

[[nodiscard]] Frame header_of(const FromLead& message);
[[nodiscard]] Frame header_of(const PartFromWorker& message);
[[nodiscard]] Frame header_of(const ShardsToLead& message);
[[nodiscard]] Frame header_of(const ShardsToWorker& message);
[[nodiscard]] Frame header_of(const PartKept& part);
[[nodiscard]] std::optional<FromLead> from_lead(const Frame& header);
[[nodiscard]] std::optional<PartFromWorker> part_from_worker(const Frame& header);
[[nodiscard]] std::optional<ShardsToLead> shards_to_lead(const Frame& header);
[[nodiscard]] std::optional<ShardsToWorker> shards_to_worker(const Frame& header);
[[nodiscard]] std::optional<std::variant<PartKept>> part_kept(const Frame& header);

// What follows a header: the shards, then those of each state; nothing where they are not of that shape.
[[nodiscard]] Frames with_state(Frame header, const ShardsState& state);
[[nodiscard]] std::optional<ShardsState> state_after_header(const Frames& frames, const TensorsShape& shape,
                                                            const std::vector<std::string>& states);
[[nodiscard]] std::vector<std::string> names_of(const NamedStates& states);

}  // namespace sluice::ps
