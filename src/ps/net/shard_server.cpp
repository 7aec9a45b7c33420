#include "ps/net/shard_server.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/failpoint.h"
#include "core/log.h"
#include "core/text.h"
#include "ps/net/log_files.h"

namespace sluice::ps {
namespace {

constexpr int kHeartbeatsOfALead = 4;              // a lead server that is silent for so many intervals can be replaced
constexpr std::size_t kMostAtOnce = 64;            // messages between two checks of the time
constexpr Nanoseconds kUntilGone = 2'000'000'000;  // a lead server without a connection for this long has gone
constexpr Nanoseconds kLongDrain = 1'000'000'000;  // a longer wait is logged

}  // namespace

ShardServer::ShardServer(ShardServerOptions options) : options_(std::move(options)), process_id_(unique_name()) {
  if (!options_.folder.empty()) {
    log_.emplace(options_.folder, options_.outlives);
    if (auto kept = read_shard_log(options_.folder, options_.optimizer)) {
      loaded_ = std::move(kept->loaded);
      keeper_ = std::move(kept->keeper);
      log_info("the log in ", options_.folder.string(), " has the shards after update ", keeper_->version());
      log_->begin(loaded_, *keeper_);
    }
  }
  listen(keeper_ ? limits_of(loaded_.assignment) : FrameSocket::Limits{});
}

void ShardServer::listen(const FrameSocket::Limits& limits) {
  socket_.reset();
  socket_.emplace(FrameSocket::Role::kListening, std::string{}, limits, options_.keys);
  port_ = socket_->listen(options_.host, port_ != 0 ? port_ : options_.port);
}

FrameSocket::Limits ShardServer::limits_of(const Assignment& assignment) const {
  return limits_for(assignment.shape(), options_.compression.push, optim::count_states(options_.optimizer));
}

void ShardServer::next(Nanoseconds limit) {
  const Nanoseconds until = clock_.now() + limit;
  while (!over_ && clock_.now() < until) {
    socket_->wait(
        std::chrono::nanoseconds(std::clamp<Nanoseconds>(next_heartbeat_ - clock_.now(), 0, until - clock_.now())));
    for (std::size_t left = kMostAtOnce; left > 0 && !over_; --left) {
      const auto received = socket_->next();
      if (!received) break;
      on_message(*received);
    }
    make_durable();
    send_heartbeat();
    check_lead();
  }
}

void ShardServer::on_message(const FrameSocket::Received& received) {
  const std::string& routing_id = received.routing_id;
  const Frame& header = received.frames.front();
  if (routing_id == lead_) {
    const auto message = from_lead(header);
    if (!message) return drop();
    last_message_at_ = clock_.now();
    return on_lead_message(*message, received.frames);
  }
  if (const auto of_worker = part_from_worker(header)) {
    return std::visit(HandlerOf{[&](const PushAhead& ahead) { on_push_ahead(routing_id, ahead, received.frames); },
                                [&](const PartMade& part) { on_part_made(routing_id, part, received.frames); },
                                [&](const PartHeartbeat& heartbeat) { on_part_heartbeat(routing_id, heartbeat); }},
                      *of_worker);
  }
  const auto message = from_lead(header);
  if (!message) {
    const auto of_worker = from_worker(header);
    if (of_worker && std::holds_alternative<Hello>(*of_worker)) warn_of_greeting(std::get<Hello>(*of_worker));
    return drop();
  }
  if (const auto* const hello = std::get_if<LeadHello>(&*message)) return on_lead_hello(routing_id, *hello);
  send(routing_id, WhoLeads{});
}

void ShardServer::on_lead_message(const FromLead& message, const Frames& frames) {
  const auto answer = [&](const LeadHeartbeat& heartbeat) {
    const bool is_up_to_date = heartbeat.greeting == greeting_ && heartbeat.workers_sent == received_workers_;
    send(lead_, ShardHeartbeat{process_id_, is_up_to_date});
  };
  std::visit(HandlerOf{[&](const LeadHello& hello) { on_lead_hello(lead_, hello); },
                       [&](const ShardsLoaded& loaded) { on_shards_loaded(loaded, frames); },
                       [&](const WorkerThere& there) { on_worker_there(there); },
                       [&](const StepAsked& asked) { on_step_asked(asked); },
                       [&](const PartAsked& asked) { send_held(asked.push); },
                       [&](const StateAsked& asked) { on_state_asked(asked); }, answer,
                       [&](const ShardsOver& over) { over_ = over; }},
             message);
}

void ShardServer::drop() {
  if (malformed_++ == 0) log_warning("dropped a message of an unknown kind; further ones are counted, not logged");
}

void ShardServer::warn_of_greeting(const Hello& hello) {
  if (std::exchange(has_warned_of_greeting_, true)) return;
  log_warning("a greeting of worker ", static_cast<int>(hello.worker), " (", hello.where, ") came to ",
              server_named(options_.number, options_.host, port_),
              ", which keeps shards only; check the order of ps.address at that worker");
}

void ShardServer::on_lead_hello(const std::string& routing_id, const LeadHello& hello) {
  if (const std::string refusal = refusal_of(hello); !refusal.empty()) {
    refusals_.log(concat("server 0 (", hello.where, ")"), refusal, clock_.now());
    return send(routing_id, ShardsRefuse{refusal});
  }
  const bool is_alive = clock_.now() - last_message_at_ <= kHeartbeatsOfALead * options_.heartbeat_interval;
  if (routing_id != lead_ && !lead_.empty() && is_alive) return;  // it will ask again
  if (routing_id != lead_) {
    log_info("the lead server is ", hello.where);
    peers_.clear();
  }
  lead_ = routing_id;
  socket_->trust(routing_id);
  lead_where_ = hello.where;
  last_message_at_ = clock_.now();
  greeting_ = hello.greeting;
  received_workers_ = 0;  // the lead server sends all workers again
  if (assigned_ != hello.assignment) {
    assigned_ = hello.assignment;
    // The lead server connects again, to a socket that accepts messages as large as these shards.
    return listen(limits_of(*assigned_));
  }
  send(routing_id, here());
}

std::string ShardServer::refusal_of(const LeadHello& hello) const {
  if (hello.protocol != kProtocol)
    return concat("server 0 uses protocol version ", hello.protocol, ", but this server version ", kProtocol,
                  "; install the same Sluice on all machines");
  return difference_between({concat("server 0 (", hello.where, ")"), hello.agreement},
                            {server_named(options_.number, options_.host, port_), options_.agreement});
}

ShardsHere ShardServer::here() const {
  const bool has_them = keeper_ && assigned_ == loaded_.assignment;
  ShardsHere here{.process_id = process_id_, .greeting = greeting_};
  if (!has_them) return here;
  here.run = loaded_.run;
  here.version = keeper_->version();
  for (const auto& [push, part] : keeper_->parts()) here.parts.push_back(push);
  return here;
}

void ShardServer::on_shards_loaded(const ShardsLoaded& loaded, const Frames& frames) {
  const auto state = state_after_header(frames, loaded.assignment.shape(), loaded.states);
  if (!state || loaded.assignment != assigned_) {
    ++malformed_;
    return;
  }
  if (log_ && keeper_ && loaded_.run != loaded.run)
    set_logs_aside(options_.folder, 0,
                   "the log of this server belongs to another run, or to updates after the checkpoint that this run "
                   "continues from");
  loaded_ = loaded;
  keeper_ = std::make_unique<ShardKeeper>(options_.optimizer, loaded.assignment.shape(), *state, loaded.version,
                                          options_.threads);
  pending_.clear();
  if (log_) log_->begin(loaded_, *keeper_);
  peers_.clear();
  received_workers_ = 0;
  send(lead_, here());
}

void ShardServer::on_worker_there(const WorkerThere& there) {
  ++received_workers_;
  if (there.routing_id.empty()) {
    peers_.erase(there.worker);
    return;
  }
  if (!assigned_) return;
  socket_->trust(there.routing_id);
  const auto found = peers_.find(there.worker);
  const bool goes_on = found != peers_.end() && found->second.routing_id == there.routing_id &&
                       found->second.incarnation == there.incarnation;
  if (!goes_on)
    peers_.insert_or_assign(there.worker, Peer{.routing_id = there.routing_id,
                                               .incarnation = there.incarnation,
                                               .pull = {options_.compression.pull, assigned_->layout}});
  Peer& peer = peers_.at(there.worker);
  peer.version = there.version;
  if (there.is_again) peer.pull.restart();
  if (!keeper_ || there.version != keeper_->version()) return;  // the worker has those weights already, or begins again
  const PackedWeights sent = peer.pull.compress(keeper_->weights());
  const WeightsPart part{.incarnation = there.incarnation,
                         .version = there.version,
                         .sequence = sent.sequence,
                         .is_whole = sent.is_whole,
                         .first_shard = first_shard()};
  socket_->send(there.routing_id, with_packed(header_of(part), sent.packed));
}

void ShardServer::on_step_asked(const StepAsked& asked) {
  const ShardStep& step = asked.step;
  if (!keeper_) return send(lead_, here());
  if (!asked.commits) {
    const auto prepared = keeper_->prepare(step);
    if (!prepared) return send(lead_, StepLacking{step.version});
    return send(lead_, StepPrepared{step.version, step.index, prepared->squares, prepared->is_finite});
  }
  const bool is_new = !keeper_->has_committed(step);
  if (is_new && !keeper_->prepare(step)) return send(lead_, StepLacking{step.version});
  if (is_new && log_) {
    log_->committed(asked);
    log_->make_durable();
  }
  if (!keeper_->commit(step, asked.update)) return send(lead_, StepLacking{step.version});
  failpoint("step-committed");
  send(lead_, StepCommitted{step.version, step.index});
}

void ShardServer::on_state_asked(const StateAsked& asked) {
  if (!keeper_ || keeper_->version() != asked.version) return send(lead_, StepLacking{asked.version});
  if (log_ && asked.begins_log) log_->begin(loaded_, *keeper_);
  const ShardsState state = keeper_->state();
  socket_->send(lead_, with_state(header_of(StateGiven{asked.version, names_of(state.optimizer)}), state));
}

// Returns null for late messages of an earlier incarnation or of an earlier lead server.
ShardServer::Peer* ShardServer::peer_of(const std::string& routing_id, const PushKey& push, std::int64_t server_epoch) {
  const auto found = peers_.find(push.worker);
  const bool is_it = found != peers_.end() && found->second.routing_id == routing_id &&
                     found->second.incarnation == Incarnation{push.incarnation, server_epoch};
  return is_it && keeper_ ? &found->second : nullptr;
}

void ShardServer::on_push_ahead(const std::string& routing_id, const PushAhead& ahead, const Frames& frames) {
  Peer* const peer = peer_of(routing_id, ahead.push, ahead.server_epoch);
  if (peer == nullptr || keeper_->has_seen(ahead.push)) return;
  if (!peer->ahead.take(ahead, frames, keeper_->shape())) ++malformed_;
}

void ShardServer::on_part_made(const std::string& routing_id, const PartMade& part, const Frames& frames) {
  Peer* const peer = peer_of(routing_id, part.push, part.server_epoch);
  if (peer == nullptr) return;
  if (part.first_shard != first_shard()) {
    ++malformed_;
    return;
  }
  if (keeper_->has_seen(part.push)) return send_held(part.push);
  Tensors tensors{.statistics = at::empty({0}, keeper_->shape().dtype)};
  if (part.is_ahead) {
    auto shards = peer->ahead.finish(part.push, keeper_->shape());
    if (!shards) return send(routing_id, PartWanted{part.push});  // some spans were lost
    tensors.shards = std::move(*shards);
  } else {
    const auto packed = packed_after_header(frames, keeper_->shape());
    auto unpacked = packed ? unpack(options_.compression.push, keeper_->shape(), *packed) : std::nullopt;
    if (!unpacked) {
      ++malformed_;
      return;
    }
    tensors = std::move(*unpacked);
  }
  static_cast<void>(keeper_->hold(part.push, tensors));
  if (log_) log_->held(part.push, tensors);
  if (log_ && options_.outlives == storage::Outlives::kMachine)
    pending_.push_back(part.push);
  else
    send_held(part.push);
}

void ShardServer::on_part_heartbeat(const std::string& routing_id, const PartHeartbeat& heartbeat) {
  if (heartbeat.push.sequence < 1 || peer_of(routing_id, heartbeat.push, heartbeat.server_epoch) == nullptr ||
      keeper_->has_seen(heartbeat.push))
    return;
  send(routing_id, PartWanted{heartbeat.push});
}

// Reports to the lead server that this part is held, unless it is missing or the log is not durable yet.
void ShardServer::send_held(const PushKey& push) {
  if (lead_.empty() || !keeper_ || std::ranges::find(pending_, push) != pending_.end()) return;
  const PartState state = keeper_->part_state(push);
  if (state != PartState::kMissing) send(lead_, PartHeld{push, state == PartState::kFinite});
}

void ShardServer::make_durable() {
  if (pending_.empty()) return;
  log_->make_durable();
  for (const PushKey& push : std::exchange(pending_, {})) send_held(push);
}

void ShardServer::send_heartbeat() {
  if (clock_.now() < next_heartbeat_) return;
  next_heartbeat_ = clock_.now() + options_.heartbeat_interval;
  for (const auto& [worker, peer] : peers_) {
    if (peer.version != kNone) send(peer.routing_id, WeightsHeartbeat{peer.incarnation, peer.version});
  }
}

void ShardServer::check_lead() {
  const Nanoseconds silent = clock_.now() - last_message_at_;
  const bool may_come = lead_.empty() || log_.has_value();
  const Nanoseconds limit =
      may_come ? std::max(options_.connect_timeout, options_.peer_timeout) : options_.peer_timeout;
  if (over_ || silent <= limit) return;
  if (lead_.empty())
    throw PeerError("no lead server has connected within ", human_duration(to_s(limit)), refusals_.but_last(),
                    "; start server 0 with the same configuration, and check its ps.address",
                    about_keys(options_.keys));
  throw PeerError("the lead server (", lead_where_, ") has been silent for ", human_duration(to_s(limit)),
                  "; see its log");
}

void ShardServer::ask_to_stop(const InterruptedError& why) {
  if (!lead_.empty()) send(lead_, ShardsFailed{static_cast<std::int64_t>(why.exit_code()), why.what()});
}

void ShardServer::fail(const Error& error) {
  // There is no socket if listening with the limits of the shards has failed.
  if (!lead_.empty() && socket_) send_until_acknowledged({static_cast<std::int64_t>(error.exit_code()), error.what()});
  socket_.reset();
}

// The lead server loses unread messages if the connection ends, so this socket stays open until the answer.
void ShardServer::send_until_acknowledged(const ShardsFailed& failed) {
  const Nanoseconds begun = clock_.now();
  Nanoseconds reached = begun;  // when the lead server last had a connection
  bool has_logged = false;
  for (Nanoseconds now = begun; !over_ && now < begun + options_.drain_timeout; now = clock_.now()) {
    if (socket_->send(lead_, {header_of(ShardsToLead{failed})})) reached = now;
    if (now - reached > kUntilGone) return;
    if (now - begun > kLongDrain && !std::exchange(has_logged, true))
      log_info(concat("waiting for the lead server (", lead_where_,
                      ") to confirm that this server has failed: ", failed.what));
    socket_->wait(
        std::chrono::nanoseconds(std::min(options_.heartbeat_interval, begun + options_.drain_timeout - now)));
    receive_over();
  }
}

void ShardServer::receive_over() {
  for (std::size_t left = kMostAtOnce; left > 0 && !over_; --left) {
    const auto received = socket_->next();
    if (!received) return;
    const auto message = received->routing_id == lead_ ? from_lead(received->frames.front()) : std::nullopt;
    if (const auto* const over = message ? std::get_if<ShardsOver>(&*message) : nullptr) over_ = *over;
  }
}

}  // namespace sluice::ps
