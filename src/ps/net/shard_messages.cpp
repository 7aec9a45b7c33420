#include "ps/net/shard_messages.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "ps/net/message_json.h"

namespace sluice::ps {
namespace wire {

SLUICE_FIELDS(ShardRange, "range", field("begin", self.begin), field("end", self.end));
SLUICE_FIELDS(Assignment, "assignment", field("layout", self.layout), field("range", self.range));
SLUICE_FIELDS(MixPart, "part", field("push", self.push), field("take", self.take));
SLUICE_FIELDS(Mix, "mix", field("keep", self.keep), field("parts", self.parts), field("divisor", self.divisor));
SLUICE_FIELDS(ShardStep, "step", field("version", self.version), field("index", self.index), field("count", self.count),
              field("mix", self.mix), field("pushes", self.pushes), field("mixes_weights", self.mixes_weights),
              field("wants_norm", self.wants_norm));
SLUICE_FIELDS(ShardUpdate, "update", field("lr", self.lr), field("divisor", self.divisor));

SLUICE_FIELDS(LeadHello, "lead_hello", field("protocol", self.protocol), field("greeting", self.greeting),
              field("session", self.process_id), field("where", self.where), field("agreement", self.agreement),
              field("assignment", self.assignment));
SLUICE_FIELDS(ShardsLoaded, "load", field("run", self.run), field("version", self.version),
              field("assignment", self.assignment), field("states", self.states), field("steps_done", self.steps_done));
SLUICE_FIELDS(WorkerThere, "worker", field("worker", self.worker), field("life", self.incarnation.number),
              field("peer", self.routing_id), field("version", self.version), field("is_again", self.is_again),
              field("reign", self.incarnation.server_epoch));
SLUICE_FIELDS(StepAsked, "step", field("commits", self.commits), field("step", self.step),
              field("update", self.update));
SLUICE_FIELDS(PartAsked, "part_asked", field("push", self.push));
SLUICE_FIELDS(StateAsked, "state_asked", field("version", self.version), field("begins_log", self.begins_log));
SLUICE_FIELDS(LeadHeartbeat, "lead_beat", field("greeting", self.greeting), field("told", self.workers_sent));
SLUICE_FIELDS(ShardsOver, "over", field("code", self.code), field("what", self.what));
SLUICE_FIELDS(PartMade, "part", field("push", self.push), field("first_shard", self.first_shard),
              field("is_ahead", self.is_ahead), field("reign", self.server_epoch));
SLUICE_FIELDS(PartHeartbeat, "part_beat", field("push", self.push), field("reign", self.server_epoch));
SLUICE_FIELDS(PartKept, "part", field("push", self.push));

SLUICE_FIELDS(ShardsHere, "here", field("session", self.process_id), field("run", self.run),
              field("version", self.version), field("parts", self.parts), field("greeting", self.greeting));
SLUICE_FIELDS(ShardsRefuse, "refuse", field("what", self.what));
SLUICE_FIELDS(StepPrepared, "prepared", field("version", self.version), field("index", self.index),
              field("squares", self.squares), field("is_finite", self.is_finite));
SLUICE_FIELDS(StepCommitted, "committed", field("version", self.version), field("index", self.index));
SLUICE_FIELDS(StepLacking, "lacking", field("version", self.version));
SLUICE_FIELDS(PartHeld, "held", field("push", self.push), field("is_finite", self.is_finite));
SLUICE_FIELDS(StateGiven, "state", field("version", self.version), field("states", self.states));
SLUICE_FIELDS(ShardHeartbeat, "shard_beat", field("session", self.process_id), field("has_heard", self.is_up_to_date));
SLUICE_FIELDS(WhoLeads, "who_leads", (void)0);
SLUICE_FIELDS(ShardsFailed, "failed", field("code", self.code), field("what", self.what));
SLUICE_FIELDS(WeightsPart, "weights", field("life", self.incarnation.number), field("version", self.version),
              field("sequence", self.sequence), field("is_whole", self.is_whole),
              field("first_shard", self.first_shard), field("reign", self.incarnation.server_epoch));
SLUICE_FIELDS(WeightsHeartbeat, "weights_beat", field("life", self.incarnation.number), field("version", self.version),
              field("reign", self.incarnation.server_epoch));
SLUICE_FIELDS(PartWanted, "part_wanted", field("push", self.push));

}  // namespace wire

// --- Checks beyond the fields' types

// The lead server stores a number for each incarnation of a worker up to the highest that it receives.
static constexpr int kMostIncarnations = 1 << 20;

static bool is_sound(const PushKey& push) {
  return push.incarnation >= 1 && push.incarnation <= kMostIncarnations && push.sequence >= 1;
}
static bool is_sound(const Assignment& assignment) {
  const auto& [layout, range] = assignment;
  return is_sound(layout) && range.begin < range.end && range.end <= layout.shards.size();
}
static bool is_sound(const LeadHello& hello) { return !hello.process_id.empty() && is_sound(hello.assignment); }
static bool is_sound(const ShardsLoaded& loaded) {
  return !loaded.run.empty() && loaded.version >= 0 && loaded.steps_done >= 0 && is_sound(loaded.assignment);
}
static bool is_sound(const WorkerThere& there) { return there.incarnation.number >= 1 && there.version >= kNone; }
static bool is_sound(const StepAsked& asked) {
  const ShardStep& step = asked.step;
  const auto is_of_a_push = [&](const MixPart& part) { return part.push < step.pushes.size(); };
  return step.version >= 1 && step.index >= 0 && step.index <= step.count && step.mix.divisor > 0 &&
         asked.update.divisor > 0 && std::isfinite(asked.update.lr) &&
         std::ranges::all_of(step.mix.parts, is_of_a_push) &&
         std::ranges::all_of(step.pushes, [](const PushKey& push) { return is_sound(push); });
}
static bool is_sound(const PartAsked& asked) { return is_sound(asked.push); }
static bool is_sound(const StateAsked& asked) { return asked.version >= 0; }
static bool is_sound(const PartMade& made) { return is_sound(made.push); }
static bool is_sound(const PartKept& kept) { return is_sound(kept.push); }

static bool is_sound(const ShardsHere& here) {
  return !here.process_id.empty() && here.version >= kNone &&
         std::ranges::all_of(here.parts, [](const PushKey& push) { return is_sound(push); });
}
static bool is_sound(const StepPrepared& prepared) { return prepared.squares >= 0; }
static bool is_sound(const WeightsPart& part) { return part.version >= 0 && part.sequence >= 1; }
static bool is_sound(const PartHeld& held) { return is_sound(held.push); }

static constexpr std::size_t kLongestOfShards = std::size_t{1} << 20;

Frame header_of(const FromLead& message) { return wire::write_header(message); }
Frame header_of(const PartFromWorker& message) { return wire::write_header(message); }
Frame header_of(const ShardsToLead& message) { return wire::write_header(message); }
Frame header_of(const ShardsToWorker& message) { return wire::write_header(message); }
Frame header_of(const PartKept& part) { return wire::write_header(std::variant<PartKept>{part}); }
std::optional<FromLead> from_lead(const Frame& header) { return wire::read_header<FromLead>(header, kLongestOfShards); }
std::optional<PartFromWorker> part_from_worker(const Frame& header) {
  return wire::read_header<PartFromWorker>(header, kLongestOfShards);
}
std::optional<ShardsToLead> shards_to_lead(const Frame& header) {
  return wire::read_header<ShardsToLead>(header, kLongestOfShards);
}
std::optional<ShardsToWorker> shards_to_worker(const Frame& header) {
  return wire::read_header<ShardsToWorker>(header, kLongestOfShards);
}
std::optional<std::variant<PartKept>> part_kept(const Frame& header) {
  return wire::read_header<std::variant<PartKept>>(header, kLongestOfShards);
}

Frames with_state(Frame header, const ShardsState& state) {
  Frames frames{std::move(header)};
  for (const at::Tensor& shard : state.values) frames.push_back(frame_of(shard));
  for (const auto& [name, of_shards] : state.optimizer) {
    for (const at::Tensor& shard : of_shards) frames.push_back(frame_of(shard));
  }
  return frames;
}

std::optional<ShardsState> state_after_header(const Frames& frames, const TensorsShape& shape,
                                              const std::vector<std::string>& states) {
  if (frames.size() != shape.shards.size() * (states.size() + 1) + 1) return std::nullopt;
  std::size_t next = 1;
  const auto take = [&]() -> std::optional<std::vector<at::Tensor>> {
    std::vector<at::Tensor> shards;
    for (const std::int64_t elements : shape.shards) {
      auto shard = tensor_of(frames[next++], shape.dtype, elements);
      if (!shard) return std::nullopt;
      shards.push_back(std::move(*shard));
    }
    return shards;
  };
  auto values = take();
  if (!values) return std::nullopt;
  ShardsState state{.values = std::move(*values)};
  for (const std::string& name : states) {
    auto of_shards = take();
    if (!of_shards) return std::nullopt;
    state.optimizer.emplace_back(name, std::move(*of_shards));
  }
  return state;
}

std::vector<std::string> names_of(const NamedStates& states) {
  std::vector<std::string> names;
  for (const auto& [name, of_shards] : states) names.push_back(name);
  return names;
}

}  // namespace sluice::ps
