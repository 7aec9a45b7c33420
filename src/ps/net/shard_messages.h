// shard_messages: the protocol of a shard server (shard_server.h) with the lead server and the workers.
// docs/explanation/ps_protocol.md shows their order. Messages may be lost, as in messages.h. Requests are repeated, and
// done once. Messages about workers are counted, and all are sent again if the counts differ. Workers and servers send
// heartbeats and request what they miss. A worker waits for six of these messages from PartHeld to the next
// WorkerThere: tune/server_step.h counts them. Values; pure.
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

struct Assignment {
  Layout layout;
  ShardRange range;

  [[nodiscard]] TensorsShape shape() const { return shape_of(layout, range); }
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

// --- From the lead server to a shard server

struct LeadHello {
  std::int64_t protocol = kProtocol;
  std::int64_t greeting = 1;  // counts greetings; one may be repeated
  std::string process_id;
  std::string where;
  comm::Agreement agreement;
  Assignment assignment;
};
struct ShardsLoaded {  // followed by the shards, then those of each state
  std::string run;     // id of the run, independent of its configuration
  std::int64_t version = 0;
  Assignment assignment;
  std::vector<std::string> states;  // names of the optimizer's states
  std::int64_t steps_done = 0;      // steps done of the update after that version
};
// State of a worker. With a version, it begins a step with those weights.
struct WorkerThere {
  WorkerId worker{};
  Incarnation incarnation;
  std::string routing_id;  // its name at the socket; empty: it has left
  std::int64_t version = kNone;
  bool is_again = false;  // the last weights may be lost; send them whole
};
struct StepAsked {
  bool commits = false;  // the second half of the step
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
  std::int64_t workers_sent = 0;  // WorkerThere messages since that greeting was answered
};
struct ShardsOver {
  std::int64_t code = 0;
  std::string what;
};

using FromLead =
    std::variant<LeadHello, ShardsLoaded, WorkerThere, StepAsked, PartAsked, StateAsked, LeadHeartbeat, ShardsOver>;

// --- From a worker to a shard server; PushAhead (messages.h) is another one

struct PartMade {  // followed by the shards, unless they were sent ahead
  PushKey push;
  std::int64_t first_shard = 0;
  bool is_ahead = false;          // the shards were sent ahead
  std::int64_t server_epoch = 0;  // server epoch in which the incarnation was counted; the same below
};
struct PartHeartbeat {
  PushKey push;  // the last one; sequence 0: none yet
  std::int64_t server_epoch = 0;
};

using PartFromWorker = std::variant<PushAhead, PartMade, PartHeartbeat>;

// --- From a shard server to the lead server

struct ShardsHere {
  std::string process_id;
  std::string run;  // id of the run whose shards it has; empty: it has no shards
  std::int64_t version = kNone;
  std::vector<PushKey> parts = {};  // pushes whose parts it holds
  std::int64_t greeting = 1;
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
struct StepLacking {  // a part of it or the previous step is missing
  std::int64_t version = 0;
};
struct PartHeld {
  PushKey push;
  bool is_finite = true;
};
struct StateGiven {  // followed by tensors, as ShardsLoaded
  std::int64_t version = 0;
  std::vector<std::string> states;
};
struct ShardHeartbeat {  // answers LeadHeartbeat
  std::string process_id;
  bool is_up_to_date = true;  // it has received all messages that were counted
};
struct WhoLeads {};  // it does not know the sender
struct ShardsFailed {
  std::int64_t code = 0;
  std::string what;
};

using ShardsToLead = std::variant<ShardsHere, ShardsRefuse, StepPrepared, StepCommitted, StepLacking, PartHeld,
                                  StateGiven, ShardHeartbeat, WhoLeads, ShardsFailed>;

// --- From a shard server to a worker

struct WeightsPart {  // followed by the shards
  Incarnation incarnation;
  std::int64_t version = 0;
  std::int64_t sequence = 1;  // this and the next one as in PackedWeights
  bool is_whole = true;
  std::int64_t first_shard = 0;
};
struct WeightsHeartbeat {  // names the last WeightsPart
  Incarnation incarnation;
  std::int64_t version = kNone;
};
struct PartWanted {
  PushKey push;
};

using ShardsToWorker = std::variant<WeightsPart, WeightsHeartbeat, PartWanted>;

// --- In a shard server's log (shard_log.h). The next lead server receives it (ShardsHere::parts) and does not reuse
// its incarnation. Earlier logs contain a PartMade there, which is read as a PartKept.

struct PartKept {  // followed by the shards
  PushKey push;
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

// The shards follow a header, then those of each state. The reader returns nothing if the shape differs.
[[nodiscard]] Frames with_state(Frame header, const ShardsState& state);
[[nodiscard]] std::optional<ShardsState> state_after_header(const Frames& frames, const TensorsShape& shape,
                                                            const std::vector<std::string>& states);
[[nodiscard]] std::vector<std::string> names_of(const NamedStates& states);

}  // namespace sluice::ps
