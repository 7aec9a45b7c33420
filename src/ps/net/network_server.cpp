#include "ps/net/network_server.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "ps/random_number.h"

namespace sluice::ps {
namespace {

constexpr int kHeartbeatsOfALivePeer = 4;     // silent for longer: another process may replace the peer
constexpr std::size_t kMoreConnections = 16;  // messages per step, in addition to one for each present worker

std::string named(WorkerId worker, const std::string& where) {
  return concat("worker ", static_cast<int>(worker), " (", where, ")");
}

}  // namespace

NetworkServer::NetworkServer(Server& server, data::Ledger& ledger, NetworkOptions options)
    : server_(server),
      ledger_(ledger),
      options_(std::move(options)),
      server_epoch_(random_number()),
      socket_(FrameSocket::Role::kListening, {}, limits_for(server.shape(), options_.compression.push), options_.keys),
      port_(options_.listening >= 0 ? socket_.take_over(options_.listening)
                                    : socket_.listen(options_.host, options_.port)),
      partial_({options_.others.begin(), options_.others.end()}),
      begin_(now()),
      empty_since_(begin_) {
  check(std::ranges::equal(server_.others(), options_.others), "the same other servers in Server and NetworkServer");
  for (ShardLink* other : options_.others) other->while_waiting([this] { keep_alive(); });
  was_over_ = is_over_ = server_.progress().version > 0 && server_.progress().version >= options_.last_version;
  if (is_over_) return;
  for (CommittedPush& push : std::exchange(options_.committed_before, {})) {
    restore_push(std::move(push));
    make_updates();  // an update if each push makes one
  }
}

std::optional<NetworkUpdate> NetworkServer::next(Nanoseconds limit) {
  const Nanoseconds until = now() + limit;
  while (true) {
    if (auto update = made_.take(now())) return update;
    if (now() >= until || is_over()) return std::nullopt;
    step(until);
  }
}

// Waits once and handles about one message per connection, so that busy workers cannot starve the other tasks. Silent
// workers are judged only afterwards, so messages that arrived while this process was busy or stopped count.
void NetworkServer::step(Nanoseconds until) {
  Nanoseconds wake = until;
  if (!is_over_) wake = std::min(wake, next_heartbeat_);
  if (const auto due = server_.due_at(); due && !is_over_) wake = std::min(wake, *due);
  if (const auto due = made_.due_at()) wake = std::min(wake, *due);
  wait(wake - now());
  const Nanoseconds woken = now();
  bool is_empty = false;
  for (std::size_t most = peers_.size() + kMoreConnections; most > 0 && !is_empty; --most) {
    auto received = socket_.next();
    is_empty = !received;
    if (received) handle(std::move(*received));
  }
  if (!is_over_) complete_partial_pushes();
  make_durable();
  drained_at_ = is_empty ? now() : woken;
  if (is_over_) return;
  remove_leaving_workers();
  make_updates();
  remove_lost_workers();
  check_for_end();
  send_heartbeat();
}

void NetworkServer::handle(FrameSocket::Received received) {
  const auto message = from_worker(received.frames.front());
  if (!message) {
    if (part_from_worker(received.frames.front())) warn_of_part();
    if (malformed_++ == 0)
      log_warning("a message that is none of a worker's was dropped; more of them are only counted");
    return;
  }
  if (const auto* const hello = std::get_if<Hello>(&*message)) return greet(received.routing_id, *hello);
  const auto found =
      std::ranges::find_if(peers_, [&](const auto& worker) { return worker.second.routing_id == received.routing_id; });
  if (found == peers_.end()) {
    if (std::holds_alternative<Leaving>(*message)) return static_cast<void>(rivals_.erase(received.routing_id));
    if (is_over_) return send(received.routing_id, why_over_);
    return send(received.routing_id, Who{});
  }
  found->second.last_message_at = now();
  std::visit([&](const auto& of_kind) { take(*found, of_kind, received.frames); }, *message);
}

void NetworkServer::greet(const std::string& routing_id, const Hello& hello) {
  if (is_over_) return send(routing_id, why_over_);
  if (const std::string refusal = refusal_of(routing_id, hello); !refusal.empty())
    return refuse(routing_id, hello, refusal);
  const auto found = peers_.find(hello.worker);
  if (found != peers_.end()) {
    Peer& peer = found->second;
    if (peer.leaves_at) {
      remove_worker(hello.worker, WorkerEvent::What::kLeft, {});
      return admit(routing_id, hello);
    }
    if (peer.process_id == hello.process_id &&
        hello.abandons != Incarnation{peer.incarnation, server_epoch_}) {  // a repeated Hello
      peer.routing_id = routing_id;
      socket_.trust(routing_id);
      peer.last_message_at = now();
      return send(routing_id, welcome_of(hello, peer));
    }
    const bool is_alive = drained_at_ - peer.last_message_at <= kHeartbeatsOfALivePeer * options_.heartbeat_interval;
    if (peer.process_id != hello.process_id && is_alive) {
      if (rivals_.size() < kMoreConnections) rivals_.insert(routing_id);
      return send(routing_id, Busy{peer.where});
    }
    remove_worker(hello.worker, WorkerEvent::What::kLost,
                  peer.process_id == hello.process_id ? "it begins anew"
                                                      : concat("another process has come for it from ", hello.where));
  }
  admit(routing_id, hello);
}

std::string NetworkServer::refusal_of(const std::string& routing_id, const Hello& hello) const {
  if (hello.protocol != kProtocol) {
    return concat("it speaks version ", hello.protocol, " of the protocol, the server version ", kProtocol,
                  "; install the same Sluice on all machines");
  }
  if (static_cast<int>(hello.worker) >= options_.most_workers)
    return concat("there is no worker ", static_cast<int>(hello.worker), ": the server takes ", options_.most_workers,
                  ", numbered from 0");
  const bool has_number = std::ranges::any_of(peers_, [&](const auto& worker) {
    return worker.second.routing_id == routing_id && worker.first != hello.worker;
  });
  if (has_number) return "this connection is another worker's already";
  if (hello.batch < 1) return concat("a batch of ", hello.batch, " samples is none");
  return difference_between({named(hello.worker, hello.where), hello.agreement},
                            {server_named(0, options_.host, port_), options_.agreement});
}

void NetworkServer::refuse(const std::string& routing_id, const Hello& hello, const std::string& why) {
  refusals_.log(named(hello.worker, hello.where), why, now());
  send(routing_id, Refusal{why});
}

// This epoch knows the pushes of an earlier one only for incarnations whose numbers it has not reused.
Welcome NetworkServer::welcome_of(const Hello& hello, const Peer& peer) const {
  const Incarnation& old = hello.abandons;
  const bool is_known = old.server_epoch == server_epoch_ || old.number < first_incarnations_.at(hello.worker);
  return {.incarnation = {peer.incarnation, server_epoch_},
          .version = server_.progress().version,
          .layout = server_.layout(),
          .last_committed = is_known ? server_.last_committed(hello.worker, static_cast<int>(old.number)) : 0,
          .run = options_.run,
          .abandoned = old,
          .constants = options_.constants};
}

void NetworkServer::admit(const std::string& routing_id, const Hello& hello) {
  socket_.trust(routing_id);
  const int incarnation = server_.join(hello.worker, now());
  first_incarnations_.emplace(hello.worker, incarnation);
  const auto [at, is_new] = peers_.emplace(hello.worker, Peer{.routing_id = routing_id,
                                                              .process_id = hello.process_id,
                                                              .where = hello.where,
                                                              .batch = hello.batch,
                                                              .incarnation = incarnation,
                                                              .last_message_at = now(),
                                                              .pull = {options_.compression.pull, server_.layout()}});
  check(is_new, "an admitted worker is new");
  rivals_.erase(routing_id);
  send(routing_id, welcome_of(hello, at->second));
  send_to_others({.worker = hello.worker, .incarnation = {incarnation, server_epoch_}, .routing_id = routing_id});
  if (!waiting_.contains(hello.worker)) give_lease(at->second);  // otherwise the lease follows with the weights
  if (options_.on_event)
    options_.on_event({hello.worker, WorkerEvent::What::kJoined, hello.where, {}, hello.process_id});
  begin_ready_workers();
}

// Whether a push uses its worker's lease and the policy's payload.
bool NetworkServer::fits(const Peer& peer, const PushMade& push) const {
  return peer.lease && push.lease == static_cast<std::int64_t>(peer.lease->id) &&
         push.record.examples <= static_cast<std::int64_t>(peer.lease->samples.size()) &&
         push.record.payload == server_.policy().payload;
}

// The answer to a push of another incarnation or a repeated one; nothing if the push may count.
std::optional<PushAnswer> NetworkServer::rejection_of(const Peers::value_type& worker, const PushRecord& push) {
  const auto& [id, peer] = worker;
  if (push.worker != id || push.incarnation != peer.incarnation) return PushAnswer::kUnknown;
  return push.sequence <= peer.pushed ? std::optional(PushAnswer::kDuplicate) : std::nullopt;
}

void NetworkServer::take(Peers::value_type& worker, const PushAhead& ahead, const Frames& frames) {
  auto& [id, peer] = worker;
  const bool is_of_its_step = peer.lease && ahead.lease == static_cast<std::int64_t>(peer.lease->id);
  if (ahead.push != PushKey{id, peer.incarnation, peer.pushed + 1} || !is_of_its_step) return;
  if (partial_.find(id) != nullptr) return;  // the push is already complete here
  if (!peer.ahead.take(ahead, frames, server_.shape())) ++malformed_;
}

void NetworkServer::take(Peers::value_type& worker, const PushMade& push, const Frames& frames) {
  auto& [id, peer] = worker;
  const PushRecord& record = push.record;
  if (is_over_) return send(peer.routing_id, why_over_);
  if (const auto answer = rejection_of(worker, record)) {
    if (answer == PushAnswer::kDuplicate && is_pending(id, peer)) return;  // the answer to the first one follows
    return send(peer.routing_id, PushAnswered{record.sequence, *answer});
  }
  auto tensors = tensors_of(push, frames);
  if (!tensors || !fits(peer, push)) {
    ++malformed_;
    return send(peer.routing_id, PushAnswered{record.sequence, PushAnswer::kOutOfTurn});
  }
  if (const PartialPush* const first = partial_.find(id); first != nullptr && first->made.record.key() == record.key())
    return;  // complete here; the other servers' parts are still missing
  if (push.is_ahead) {
    auto shards = peer.ahead.finish(record.key(), server_.shape());
    if (!shards) return send(peer.routing_id, ServerAgain{});  // some spans were lost
    tensors->shards = std::move(*shards);
  }
  if (!others_hold(worker, record.key())) return partial_.add({push, *tensors});
  count(worker, push, *tensors);
}

std::optional<Tensors> NetworkServer::tensors_of(const PushMade& push, const Frames& frames) const {
  TensorsShape shape = server_.shape();
  if (push.is_ahead) {
    shape.shards.clear();
    return tensors_after_header(frames, shape);
  }
  const auto packed = packed_after_header(frames, shape);
  return packed ? unpack(options_.compression.push, shape, *packed) : std::nullopt;
}

void NetworkServer::count(Peers::value_type& worker, const PushMade& push, const Tensors& tensors) {
  auto& [id, peer] = worker;
  const PushRecord& record = push.record;
  partial_.erase(id);
  const PushAnswer answer = server_.push(record, tensors, now());
  if (answer == PushAnswer::kRefused) throw_not_finite(worker, record.sequence);
  if (answer != PushAnswer::kCommitted) return send(peer.routing_id, PushAnswered{record.sequence, answer});
  peer.pushed = record.sequence;
  peer.version = kNone;
  waiting_[id] = {record, *std::exchange(peer.lease, std::nullopt), push.scores, push.times};
  write_down(waiting_[id], tensors);
  if (!is_pending(id, peer)) acknowledge(peer, record.sequence);
  make_updates();
  if (!is_over_) give_next_lease(worker);
}

void NetworkServer::take(Peers::value_type& worker, const PushSent& sent, const Frames&) {
  const auto& [id, peer] = worker;
  if (sent.sequence != peer.pushed) return;
  if (const auto found = waiting_.find(id); found != waiting_.end()) {
    found->second.times.send_s = sent.send_s;
    found->second.is_timed = true;
  }
  made_.set_send_time({id, peer.incarnation, sent.sequence}, sent.send_s);
}

void NetworkServer::take(Peers::value_type& worker, const WorkerHeartbeat& heartbeat, const Frames&) {
  if (has_sent_over_) return send(worker.second.routing_id, why_over_);  // the worker may have missed it
  const PartialPush* const partial = partial_.find(worker.first);
  const bool is_here = partial != nullptr && partial->made.record.sequence == heartbeat.pushed;
  if (heartbeat.pushed > worker.second.pushed && !is_here) send(worker.second.routing_id, ServerAgain{});
}

void NetworkServer::take(Peers::value_type& worker, const WorkerAgain& again, const Frames&) {
  auto& [id, peer] = worker;
  if (peer.lease && again.lease < static_cast<std::int64_t>(peer.lease->id)) send_lease(peer);
  if (peer.version != kNone && again.version < peer.version)
    give_weights(worker, server_.begin_again(id), /*is_again=*/true);
}

void NetworkServer::take(Peers::value_type& worker, const Leaving&, const Frames&) {
  if (is_over_) return remove_worker(worker.first, WorkerEvent::What::kLeft, {});
  worker.second.leaves_at = now() + options_.leave_grace;
}

void NetworkServer::take(Peers::value_type& worker, const Failed& failed, const Frames&) {
  if (is_over_) return remove_worker(worker.first, WorkerEvent::What::kLeft, {});  // caused by the end
  const std::string what = concat(named(worker.first, worker.second.where), " has failed: ", failed.what);
  remove_worker(worker.first, WorkerEvent::What::kFailed, failed.what);
  if (failed.code == static_cast<std::int64_t>(ExitCode::kDiverged)) throw DivergedError(what);
}

void NetworkServer::remove_worker(WorkerId worker, WorkerEvent::What what, const std::string& why) {
  const auto found = peers_.find(worker);
  const std::string where = found->second.where;
  if (found->second.lease) ledger_.give_back(found->second.lease->id);
  send_to_others({.worker = worker, .incarnation = {found->second.incarnation, server_epoch_}});
  peers_.erase(found);
  partial_.erase(worker);
  made_.forget(worker);
  if (const auto pushed = waiting_.find(worker); pushed != waiting_.end()) pushed->second.is_timed = true;
  empty_since_ = now();
  last_one_left_ = what == WorkerEvent::What::kLeft;
  if (!is_over_) server_.leave(worker, now());
  if (options_.on_event) options_.on_event({worker, what, where, why});
  if (!is_over_) make_updates();
}

void NetworkServer::make_updates() {
  while (!is_over_) {
    const ServerProgress before = server_.progress();
    std::vector<UpdateRecord> done = server_.advance(now(), [this](const UpdateRecord& update) { write_down(update); });
    if (done.empty()) break;
    check(done.size() == 1, "at most one update after each push");
    report_update(std::move(done.front()), before);
  }
  if (!is_over_) begin_ready_workers();
}

void NetworkServer::report_update(UpdateRecord done, const ServerProgress& before) {
  if (done.is_dropped) {
    throw DivergedError("update ", done.update.version,
                        ": the pushes are finite, but not what comes of them; lower the learning rate");
  }
  NetworkUpdate update{.before = before, .after = server_.progress(), .at = now_ns(), .open_since = open_since_};
  std::vector<PushKey> untimed;
  for (const PushRecord& record : done.update.pushes) {
    const auto waiting = waiting_.extract(record.worker);
    const Waiting& pushed = waiting.mapped();
    ledger_.push_first(pushed.lease.id, record.examples);
    update.pushes.push_back({.record = record,
                             .scores = pushed.scores,
                             .times = pushed.times,
                             .staleness = staleness_of(record, done.update.version)});
    if (!pushed.is_timed) untimed.push_back(record.key());
  }
  update.done = std::move(done);
  const bool is_last = server_.progress().version >= options_.last_version;
  if (is_last || (options_.wants_state && options_.wants_state(before, server_.progress()))) {
    for (ShardLink* other : options_.others) other->begin_log_at_next_state();
    update.state = server_.state();
    update.ledger = ledger_.state();
    if (options_.journal) begin_journal();
  }
  made_.add(std::move(update), std::move(untimed), now());
  if (is_last) is_over_ = true;
}

void NetworkServer::begin_ready_workers() {
  for (auto& worker : peers_) {
    auto& [id, peer] = worker;
    if (peer.version != kNone || peer.leaves_at || !server_.may_begin(id)) continue;
    give_next_lease(worker);
    give_weights(worker, server_.begin(id));
  }
}

// A lease also confirms to the worker that its last push was committed.
void NetworkServer::give_next_lease(Peers::value_type& worker) {
  if (!worker.second.lease && !is_pending(worker.first, worker.second)) give_lease(worker.second);
}

void NetworkServer::give_lease(Peer& peer) {
  peer.lease = *ledger_.lease(peer.batch);  // the ledger never runs out of samples
  send_lease(peer);
}

void NetworkServer::send_lease(const Peer& peer) {
  if (!peer.lease) return;
  const LeaseGiven given{static_cast<std::int64_t>(peer.lease->id), peer.lease->epoch};
  socket_.send(peer.routing_id, with_samples(header_of(given), peer.lease->samples));
}

void NetworkServer::give_weights(Peers::value_type& to, std::int64_t version, bool is_again) {
  auto& [worker, peer] = to;
  const Weights weights = server_.weights();
  check(weights.version == version, "a worker begins with the newest weights");
  peer.version = version;
  if (!open_since_) open_since_ = now_ns();
  send_to_others({.worker = worker,
                  .incarnation = {peer.incarnation, server_epoch_},
                  .routing_id = peer.routing_id,
                  .version = version,
                  .is_again = is_again});
  if (is_again) peer.pull.restart();
  const PackedWeights sent = peer.pull.compress(weights.tensors);
  socket_.send(peer.routing_id,
               with_packed(header_of(WeightsGiven{version, sent.sequence, sent.is_whole}), sent.packed));
}

}  // namespace sluice::ps
