// The part of NetworkServer that makes pushes outlive the server (push_journal.h).
#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/failpoint.h"
#include "ps/net/network_server.h"

namespace sluice::ps {

CommittedPush NetworkServer::as_committed(const Waiting& push, const Tensors& tensors) {
  const std::vector<std::int64_t>& leased = push.lease.samples;
  return {.push = {push.record, push.scores, push.times, tensors},
          .epoch = push.lease.epoch,
          .samples = {leased.begin(), leased.begin() + push.record.examples}};
}

void NetworkServer::write_down(const Waiting& push, const Tensors& tensors) {
  if (options_.journal == nullptr) return;
  options_.journal->write_push(as_committed(push, tensors));
  if (options_.journal->must_make_durable()) pending_.push_back(push.record.key());
}

// Other servers may write their steps to disk. The decision must be durable here before any of them knows it.
void NetworkServer::write_down(const UpdateRecord& decided) {
  if (options_.journal == nullptr) return;
  options_.journal->write_update(decided);
  if (!options_.others.empty()) options_.journal->make_durable();
  failpoint("update-decided");
}

void NetworkServer::acknowledge(const Peer& peer, std::int64_t sequence) {
  send(peer.routing_id, PushAnswered{sequence, PushAnswer::kCommitted});
  failpoint("push-acknowledged");
}

// One sync covers all pushes that arrived together. Their workers receive answers only after it.
void NetworkServer::make_durable() {
  if (pending_.empty()) return;
  const std::vector<PushKey> pushes = std::exchange(pending_, {});
  options_.journal->make_durable();
  failpoint("push-settled");
  for (const PushKey& push : pushes) {
    const auto found = peers_.find(push.worker);
    if (found == peers_.end() || found->second.incarnation != push.incarnation) continue;
    acknowledge(found->second, push.sequence);
    if (!is_over_) give_next_lease(*found);
  }
}

bool NetworkServer::is_pending(WorkerId worker, const Peer& peer) const {
  return std::ranges::any_of(
      pending_, [&](const PushKey& push) { return push.worker == worker && push.incarnation == peer.incarnation; });
}

void NetworkServer::restore_push(CommittedPush committed) {
  const PushRecord& record = committed.push.record;
  auto lease = ledger_.lease_again(committed.epoch, committed.samples);
  check(lease.has_value(), "the samples of a waiting push are not used yet");
  waiting_[record.worker] = {record, std::move(*lease), committed.push.scores, committed.push.times, /*is_timed=*/true};
  server_.restore_push(record, std::move(committed.push.tensors), now());
}

void NetworkServer::begin_journal() {
  std::vector<CommittedPush> waiting;
  for (const auto& [worker, push] : waiting_) waiting.push_back(as_committed(push, server_.waiting().at(worker)));
  options_.journal->begin(server_.weights(), waiting);
}

}  // namespace sluice::ps
