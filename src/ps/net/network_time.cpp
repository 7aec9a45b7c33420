// The part of NetworkServer that depends on time: heartbeats, removal of silent workers, end of the run.
#include <algorithm>
#include <variant>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "ps/net/network_server.h"

namespace sluice::ps {

void NetworkServer::send_heartbeat() {
  if (now() < next_heartbeat_) return;
  next_heartbeat_ = now() + options_.heartbeat_interval;
  for (const auto& [worker, peer] : peers_) {
    const std::int64_t lease = peer.lease ? static_cast<std::int64_t>(peer.lease->id) : kNone;
    send(peer.routing_id, ServerHeartbeat{lease, peer.version, {peer.incarnation, server_epoch_}});
  }
  partial_.ask_again();
}

void NetworkServer::remove_leaving_workers() {
  std::vector<WorkerId> gone;
  for (const auto& [worker, peer] : peers_) {
    if (peer.leaves_at && (is_over_ || now() >= *peer.leaves_at)) gone.push_back(worker);
  }
  for (const WorkerId worker : gone) remove_worker(worker, WorkerEvent::What::kLeft, {});
}

void NetworkServer::remove_lost_workers() {
  std::vector<WorkerId> silent;
  for (const auto& [worker, peer] : peers_) {
    if (drained_at_ - peer.last_message_at > options_.peer_timeout) silent.push_back(worker);
  }
  for (const WorkerId worker : silent) {
    if (is_over_) return;
    remove_worker(worker, WorkerEvent::What::kLost,
                  concat("no sign of life for ", human_duration(to_s(options_.peer_timeout))));
  }
}

void NetworkServer::check_for_end() {
  const std::string waited = human_duration(to_s(options_.connect_timeout));
  if (peers_.empty()) {
    if (open_since_ && last_one_left_) throw AllWorkersLeft("all workers have left before the run was over");
    if (now() - empty_since_ < options_.connect_timeout) return;
    throw PeerError(open_since_
                        ? concat("no worker has been there for ", waited, "; start them again")
                        : concat(last_one_left_
                                     ? "all workers have left before training began, and no other has come within "
                                     : "no worker has come within ",
                                 waited, refusals_.but_last(),
                                 "; start them with the same configuration and, with keys, the same keys"));
  }
  if (open_since_ || now() - begin_ < options_.connect_timeout) return;
  log_warning("after ", waited, " only ", counted(peers_.size(), "worker"), " of the policy's ",
              server_.policy().workers, " have come: training begins without the others");
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
  for (const auto& [worker, peer] : peers_) send(peer.routing_id, over);
  std::erase_if(
      rivals_, [&](const std::string& routing_id) { return !socket_.send(routing_id, {header_of(FromServer(over))}); });
  if (over.code == 0 && options_.journal == nullptr)
    for (ShardLink* other : options_.others) other->end({});
  const Nanoseconds until = now() + options_.drain_timeout;
  while ((!peers_.empty() || !rivals_.empty() || was_over_) && now() < until) {
    socket_.wait(std::chrono::nanoseconds(until - now()));
    auto received = socket_.next();
    if (!received) continue;
    try {
      handle(std::move(*received));
    } catch (const DivergedError&) {  // in a step that is no longer needed
    }
  }
}

}  // namespace sluice::ps
