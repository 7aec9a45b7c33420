// The part of NetworkServer that works with shard servers (shard_link.h).
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "ps/net/network_server.h"

namespace sluice::ps {

NetworkServer::~NetworkServer() {
  for (ShardLink* other : options_.others) other->while_waiting({});
}

// Called while another server is awaited. Also notices if a third one has failed.
void NetworkServer::keep_alive() {
  for (ShardLink* other : options_.others) other->look();
  if (!is_over_) send_heartbeat();
}

std::vector<FrameSocket*> NetworkServer::other_sockets() const {
  std::vector<FrameSocket*> sockets;
  for (ShardLink* other : options_.others) sockets.push_back(&other->socket());
  return sockets;
}

void NetworkServer::wait(Nanoseconds limit) {
  socket_.wait(std::chrono::nanoseconds(std::max<Nanoseconds>(limit, 0)), -1, other_sockets());
  for (ShardLink* other : options_.others) {
    other->look();
    if (!other->why_to_stop().empty() && !is_over_) throw InterruptedError(other->why_to_stop());
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

void NetworkServer::warn_of_part() {
  if (std::exchange(has_warned_of_part_, true)) return;
  log_warning("what a worker sends to servers of shards came to ", server_named(0, options_.host, port_),
              "; check the order of ps.address at the workers");
}

void NetworkServer::send_to_others(const WorkerThere& there) {
  for (ShardLink* other : options_.others) other->send_worker(there);
}

// Whether all other servers hold their parts. Ends the run if a part is not finite.
bool NetworkServer::others_hold(const Peers::value_type& worker, const PushKey& push) const {
  const PartState state = partial_.part_state(push);
  if (state == PartState::kNotFinite) throw_not_finite(worker, push.sequence);
  return state == PartState::kFinite;
}

void NetworkServer::complete_partial_pushes() {
  for (auto& worker : peers_) {
    const PartialPush* const waits = partial_.find(worker.first);
    if (waits == nullptr || !others_hold(worker, waits->made.record.key())) continue;
    const PartialPush push = partial_.take(worker.first);
    count(worker, push.made, push.tensors);
    if (is_over_) return;
  }
}

void NetworkServer::throw_not_finite(const Peers::value_type& worker, std::int64_t sequence) {
  throw DivergedError("push ", sequence, " of worker ", static_cast<int>(worker.first), " (", worker.second.where,
                      ") has numbers that are not finite; lower the learning rate");
}

}  // namespace sluice::ps
