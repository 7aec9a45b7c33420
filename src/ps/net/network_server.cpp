#include "ps/net/network_server.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/check.h"
#include "core/concat.h"
#include "core/failpoint.h"
#include "core/log.h"
#include "core/text.h"
#include "ps/random_number.h"

namespace sluice::ps {
namespace {

constexpr int kHeartbeatsOfALivePeer = 4;     // silent for longer: another process may replace the peer
constexpr std::size_t kMoreConnections = 16;  // messages per step, in addition to one for each present worker

}  // namespace

NetworkServer::NetworkServer(Server& server, data::Ledger& ledger, NetworkOptions options)
    : server_(server),
      ledger_(ledger),
      options_(std::move(options)),
      server_epoch_(random_number()),
      socket_(FrameSocket::Role::kListening, {}, limits_for(server.shape(), options_.compression.push), options_.keys),
      port_(options_.listening >= 0 ? socket_.take_over(options_.listening)
                                    : socket_.listen(options_.host, options_.port)),
      begin_(now()),
      members_(begin_, kHeartbeatsOfALivePeer * options_.heartbeat_interval),
      intake_(server_, options_.compression.push, {options_.others.begin(), options_.others.end()}),
      waiting_(options_.journal),
      steps_(server_, ledger_, socket_, options_.others) {
  check(std::ranges::equal(server_.others(), options_.others), "the same other servers in Server and NetworkServer");
  for (ShardLink* other : options_.others) other->while_waiting([this] { keep_alive(); });
  was_over_ = is_over_ = server_.progress().version > 0 && server_.progress().version >= options_.last_version;
  if (is_over_) return;
  for (CommittedPush& committed : std::exchange(options_.committed_before, {})) {
    const Push& push = committed.push;
    auto lease = ledger_.lease_again(committed.epoch, committed.samples);
    check(lease.has_value(), "the samples of a waiting push are not used yet");
    waiting_.restore({push.record, std::move(*lease), push.scores, push.times, /*is_timed=*/true});
    server_.restore_push(push.record, std::move(committed.push.tensors), now());
    make_updates();  // an update if each push makes one
  }
}

NetworkServer::~NetworkServer() {
  for (ShardLink* other : options_.others) other->while_waiting({});
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
  for (std::size_t most = members_.all().size() + kMoreConnections; most > 0 && !is_empty; --most) {
    auto received = socket_.next();
    is_empty = !received;
    if (received) on_message(std::move(*received));
  }
  if (!is_over_) commit_whole_pushes();
  make_durable();
  members_.set_drained_at(is_empty ? now() : woken);
  if (is_over_) return;
  remove_leaving_workers();
  make_updates();
  remove_lost_workers();
  check_for_end();
  send_heartbeat();
}

void NetworkServer::wait(Nanoseconds limit) {
  std::vector<FrameSocket*> other_sockets;
  for (ShardLink* other : options_.others) other_sockets.push_back(&other->socket());
  socket_.wait(std::chrono::nanoseconds(std::max<Nanoseconds>(limit, 0)), -1, other_sockets);
  for (ShardLink* other : options_.others) {
    other->look();
    if (!other->why_to_stop().empty() && !is_over_) throw InterruptedError(other->why_to_stop());
  }
}

// Called while another server is awaited. Also notices if a third one has failed.
void NetworkServer::keep_alive() {
  for (ShardLink* other : options_.others) other->look();
  if (!is_over_) send_heartbeat();
}

void NetworkServer::send_heartbeat() {
  if (now() < next_heartbeat_) return;
  next_heartbeat_ = now() + options_.heartbeat_interval;
  for (const auto& [worker, member] : members_.all())
    send(member.routing_id, ServerHeartbeat{member.lease_id(), member.version, member.incarnation});
  for (const auto& [worker, member] : members_.all()) intake_.ask_again(member);
}

void NetworkServer::on_message(FrameSocket::Received received) {
  const std::string& routing_id = received.routing_id;
  const auto message = from_worker(received.frames.front());
  if (!message) return on_foreign_message(received.frames.front());
  if (const auto* const hello = std::get_if<Hello>(&*message)) return on_hello(routing_id, *hello);
  if (std::holds_alternative<Leaving>(*message) || std::holds_alternative<Failed>(*message))
    send(routing_id, why_over_);  // the sender waits for an answer before it closes the connection
  if (Member* const member = members_.find_by_connection(routing_id)) {
    member->last_message_at = now();
    return dispatch(*member, *message, received.frames);
  }
  if (std::holds_alternative<Leaving>(*message)) return static_cast<void>(rivals_.erase(routing_id));
  if (is_over_) return send(routing_id, why_over_);
  send(routing_id, Who{});
}

void NetworkServer::on_foreign_message(const Frame& header) {
  if (part_from_worker(header) && !std::exchange(has_warned_of_part_, true))
    log_warning("a worker's message for a shard server came to ", server_named(0, options_.host, port_),
                "; check the order of ps.address at the workers");
  if (malformed_++ + intake_.malformed() == 0)
    log_warning("dropped a message that is not part of the protocol; further ones are counted, not logged");
}

void NetworkServer::dispatch(Member& member, const FromWorker& message, const Frames& frames) {
  std::visit(
      HandlerOf{[](const Hello&) {},  // handled before: its sender may be no member
                [&](const PushAhead& ahead) { intake_.on_push_ahead(member, ahead, frames); },
                [&](const PushMade& push) { on_push_made(member, push, frames); },
                [&](const PushSent& sent) { on_push_sent(member, sent); },
                [&](const WorkerHeartbeat& heartbeat) { on_heartbeat(member, heartbeat); },
                [&](const WorkerAgain& again) { on_again(member, again); }, [&](const Leaving&) { on_leaving(member); },
                [&](const Failed& failed) { on_failed(member, failed); }},
      message);
}

void NetworkServer::on_push_made(Member& member, const PushMade& push, const Frames& frames) {
  if (is_over_) return send(member.routing_id, why_over_);
  const std::int64_t sequence = push.record.sequence;
  const PushIntake::Result result = intake_.on_push_made(member, push, frames);
  if (result.whole) return commit(member, *result.whole);
  if (result.is_incomplete) return send(member.routing_id, ServerAgain{});
  if (!result.answer) return;
  if (result.answer == PushAnswer::kDuplicate && waiting_.is_pending(member.key_of(sequence)))
    return;  // the answer to the first one follows
  send(member.routing_id, PushAnswered{sequence, *result.answer});
}

void NetworkServer::commit_whole_pushes() {
  for (auto& [worker, member] : members_.all()) {
    const auto push = intake_.take_whole(member);
    if (!push) continue;
    commit(member, *push);
    if (is_over_) return;
  }
}

void NetworkServer::commit(Member& member, const OwnPart& push) {
  const PushRecord& record = push.made.record;
  member.own_part.reset();
  const PushAnswer answer = server_.push(record, push.tensors, now());
  if (answer == PushAnswer::kRefused) throw_not_finite(member, record.sequence);
  if (answer != PushAnswer::kCommitted) return send(member.routing_id, PushAnswered{record.sequence, answer});
  member.pushed = record.sequence;
  member.version = kNone;
  waiting_.add({record, *std::exchange(member.lease, std::nullopt), push.made.scores, push.made.times}, push.tensors);
  if (!waiting_.is_pending(record.key())) acknowledge(member, record.sequence);
  make_updates();
  if (!is_over_) give_next_lease(member);
}

void NetworkServer::acknowledge(const Member& member, std::int64_t sequence) {
  send(member.routing_id, PushAnswered{sequence, PushAnswer::kCommitted});
  failpoint("push-acknowledged");
}

void NetworkServer::make_durable() {
  for (const PushKey& push : waiting_.make_durable()) {
    Member* const member = members_.find(push.worker);
    if (member == nullptr || member->incarnation.number != push.incarnation) continue;
    acknowledge(*member, push.sequence);
    if (!is_over_) give_next_lease(*member);
  }
}

void NetworkServer::on_push_sent(const Member& member, const PushSent& sent) {
  if (sent.sequence != member.pushed) return;
  waiting_.set_send_time(member.id, sent.send_s);
  made_.set_send_time(member.key_of(sent.sequence), sent.send_s);
}

void NetworkServer::make_updates() {
  // Other servers may write their steps to disk. The decision must be durable here before they receive it.
  const auto on_decision = [this](const UpdateRecord& decided) {
    waiting_.write_update(decided, /*is_durable=*/!options_.others.empty());
  };
  while (!is_over_) {
    const ServerProgress before = server_.progress();
    std::vector<UpdateRecord> done = server_.advance(now(), on_decision);
    if (done.empty()) break;
    check(done.size() == 1, "at most one update after each push");
    report_update(std::move(done.front()), before);
  }
  if (!is_over_) begin_ready_workers();
}

void NetworkServer::report_update(UpdateRecord done, const ServerProgress& before) {
  if (done.is_dropped) {
    throw DivergedError("update ", done.update.version,
                        " is not finite, although its pushes are; lower the learning rate");
  }
  NetworkUpdate update{.before = before, .after = server_.progress(), .at = now_ns(), .open_since = open_since_};
  std::vector<PushKey> untimed;
  for (const PushRecord& record : done.update.pushes) {
    const WaitingPush pushed = waiting_.take(record.worker);
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
  for (auto& [worker, member] : members_.all()) {
    if (member.state() != WorkerState::kWaiting || !server_.may_begin(worker)) continue;
    give_next_lease(member);
    if (!open_since_) open_since_ = now_ns();
    steps_.give_weights(member, server_.begin(worker));
  }
}

// A lease also confirms to the worker that its last push was committed.
void NetworkServer::give_next_lease(Member& member) {
  if (!member.lease && !waiting_.is_pending(member.key_of(member.pushed))) steps_.give_lease(member);
}

void NetworkServer::on_again(Member& member, const WorkerAgain& again) {
  if (again.lease < member.lease_id()) steps_.send_lease(member);
  if (again.version < member.version) steps_.give_weights(member, server_.begin_again(member.id), /*is_again=*/true);
}

void NetworkServer::check_for_end() {
  const std::string waited = human_duration(to_s(options_.connect_timeout));
  if (members_.empty()) {
    if (open_since_ && members_.last_one_left()) throw AllWorkersLeft("all workers have left before the run was over");
    if (now() - members_.empty_since() < options_.connect_timeout) return;
    throw PeerError(open_since_
                        ? concat("no worker has been connected for ", waited, "; start the workers again")
                        : concat(members_.last_one_left()
                                     ? "all workers have left before training began, and no other has joined within "
                                     : "no worker has joined within ",
                                 waited, refusals_.but_last(),
                                 "; start them with the same configuration and, with keys, the same keys"));
  }
  if (open_since_ || now() - begin_ < options_.connect_timeout) return;
  log_warning("after ", waited, " only ", counted(members_.all().size(), "worker"), " of the policy's ",
              server_.policy().workers, " joined: training begins without the others");
  server_.open(now());
  make_updates();
}

void NetworkServer::reject_all(const Over& over, Nanoseconds limit) {
  is_over_ = true;
  const Nanoseconds until = now() + limit;
  while (now() < until || (!rivals_.empty() && now() < until + options_.drain_timeout)) {
    socket_.wait(std::chrono::milliseconds(50));
    while (const auto received = socket_.next()) {
      const auto message = from_worker(received->frames.front());
      if (message && std::holds_alternative<Leaving>(*message)) rivals_.erase(received->routing_id);
      const auto* const hello = message ? std::get_if<Hello>(&*message) : nullptr;
      if (hello == nullptr || hello->abandons.number != 0) continue;
      if (socket_.send(received->routing_id, {header_of(FromServer(over))})) rivals_.insert(received->routing_id);
    }
  }
}

void NetworkServer::end(const Over& over) {
  is_over_ = has_sent_over_ = true;
  why_over_ = over;
  remove_leaving_workers();
  for (const auto& [worker, member] : members_.all()) send(member.routing_id, over);
  std::erase_if(
      rivals_, [&](const std::string& routing_id) { return !socket_.send(routing_id, {header_of(FromServer(over))}); });
  if (over.code == 0 && options_.journal == nullptr)
    for (ShardLink* other : options_.others) other->end({});
  const Nanoseconds until = now() + options_.drain_timeout;
  while ((!members_.empty() || !rivals_.empty() || was_over_) && now() < until) {
    socket_.wait(std::chrono::nanoseconds(until - now()));
    auto received = socket_.next();
    if (!received) continue;
    try {
      on_message(std::move(*received));
    } catch (const DivergedError&) {  // in a step that is no longer needed
    }
  }
}

bool NetworkServer::keep_alive_for_others(Nanoseconds limit) {
  if (options_.others.empty() || options_.journal == nullptr || why_over_.code != 0) return false;
  wait(limit);
  constexpr int kMostAtOnce = 64;
  for (int left = kMostAtOnce; left > 0 && socket_.next(); --left) {  // drops late messages of workers
  }
  return true;
}

}  // namespace sluice::ps
