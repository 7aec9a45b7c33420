// The part of NetworkServer that admits and removes workers.
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "ps/net/network_server.h"

namespace sluice::ps {

void NetworkServer::on_hello(const std::string& routing_id, const Hello& hello) {
  constexpr std::size_t kMostRivals = 16;  // connections
  if (is_over_) return send(routing_id, why_over_);
  if (const std::string refusal = refusal_of(routing_id, hello); !refusal.empty()) {
    refusals_.log(worker_named(hello.worker, hello.where), refusal, now());
    return send(routing_id, Refusal{refusal});
  }
  Member* const member = members_.find(hello.worker);
  switch (members_.judge(hello)) {
    case Greeting::kNew: break;
    case Greeting::kAfterLeaving: remove_worker(hello.worker, WorkerEvent::What::kLeft, {}); break;
    case Greeting::kRepeated:
      member->routing_id = routing_id;
      socket_.trust(routing_id);
      member->last_message_at = now();
      return send(routing_id, welcome_of(hello, *member));
    case Greeting::kAnew: remove_worker(hello.worker, WorkerEvent::What::kLost, "it has joined again"); break;
    case Greeting::kRival:
      if (rivals_.size() < kMostRivals) rivals_.insert(routing_id);
      return send(routing_id, Busy{member->where});
    case Greeting::kReplacement:
      remove_worker(hello.worker, WorkerEvent::What::kLost,
                    concat("another process has taken its number, from ", hello.where));
      break;
  }
  admit(routing_id, hello);
}

std::string NetworkServer::refusal_of(const std::string& routing_id, const Hello& hello) {
  if (hello.protocol != kProtocol) {
    return concat("it uses protocol version ", hello.protocol, ", but the server uses version ", kProtocol,
                  "; install the same Sluice on all machines");
  }
  if (static_cast<int>(hello.worker) >= options_.most_workers)
    return concat("the server accepts ", options_.most_workers, " workers, numbered from 0; give it a lower number");
  const Member* const at_connection = members_.find_by_connection(routing_id);
  if (at_connection != nullptr && at_connection->id != hello.worker) return "this connection belongs to another worker";
  if (hello.batch < 1) return concat("it requested a batch of ", hello.batch, " samples; a batch has at least one");
  return difference_between({worker_named(hello.worker, hello.where), hello.agreement},
                            {server_named(0, options_.host, port_), options_.agreement});
}

// This epoch knows the pushes of an earlier one only for incarnations whose numbers it has not reused.
Welcome NetworkServer::welcome_of(const Hello& hello, const Member& member) const {
  const Incarnation& old = hello.abandons;
  const bool is_known = old.server_epoch == server_epoch_ || members_.is_before_this_epoch(hello.worker, old.number);
  return {.incarnation = member.incarnation,
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
  Member& member = members_.add({.id = hello.worker,
                                 .routing_id = routing_id,
                                 .process_id = hello.process_id,
                                 .where = hello.where,
                                 .batch = hello.batch,
                                 .incarnation = {incarnation, server_epoch_},
                                 .last_message_at = now(),
                                 .pull = {options_.compression.pull, server_.layout()}});
  rivals_.erase(routing_id);
  send(routing_id, welcome_of(hello, member));
  steps_.announce(member);
  if (!waiting_.contains(member.id)) steps_.give_lease(member);  // otherwise the lease follows with the weights
  if (options_.on_event)
    options_.on_event({hello.worker, WorkerEvent::What::kJoined, hello.where, {}, hello.process_id});
  begin_ready_workers();
}

void NetworkServer::on_heartbeat(const Member& member, const WorkerHeartbeat& heartbeat) {
  if (has_sent_over_) return send(member.routing_id, why_over_);  // the worker may have missed it
  if (!member.has_sent(heartbeat.pushed)) send(member.routing_id, ServerAgain{});
}

void NetworkServer::on_leaving(Member& member) {
  if (is_over_) return remove_worker(member.id, WorkerEvent::What::kLeft, {});
  member.leaves_at = now() + options_.leave_grace;
}

void NetworkServer::on_failed(const Member& member, const Failed& failed) {
  if (is_over_) return remove_worker(member.id, WorkerEvent::What::kLeft, {});  // caused by the end
  const std::string what = concat(worker_named(member.id, member.where), " has failed: ", failed.what);
  remove_worker(member.id, WorkerEvent::What::kFailed, failed.what);
  if (failed.code == static_cast<std::int64_t>(ExitCode::kDiverged)) throw DivergedError(what);
}

void NetworkServer::remove_worker(WorkerId worker, WorkerEvent::What what, const std::string& why) {
  const Member& member = *members_.find(worker);
  const std::string where = member.where;
  if (member.lease) ledger_.give_back(member.lease->id);
  steps_.announce_removal(member);
  members_.remove(worker, what == WorkerEvent::What::kLeft, now());
  made_.forget(worker);
  waiting_.set_send_time(worker, std::nullopt);
  if (!is_over_) server_.leave(worker, now());
  if (options_.on_event) options_.on_event({worker, what, where, why});
  if (!is_over_) make_updates();
}

void NetworkServer::remove_leaving_workers() {
  const auto has_left = [&](const Member& member) {
    return member.leaves_at && (is_over_ || now() >= *member.leaves_at);
  };
  for (const WorkerId worker : members_.all_that(has_left)) remove_worker(worker, WorkerEvent::What::kLeft, {});
}

void NetworkServer::remove_lost_workers() {
  const auto is_lost = [&](const Member& member) { return members_.silence_of(member) > options_.peer_timeout; };
  for (const WorkerId worker : members_.all_that(is_lost)) {
    if (is_over_) return;
    remove_worker(worker, WorkerEvent::What::kLost,
                  concat("no sign of life for ", human_duration(to_s(options_.peer_timeout))));
  }
}

}  // namespace sluice::ps
