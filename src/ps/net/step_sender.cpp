#include "ps/net/step_sender.h"

#include "core/check.h"

namespace sluice::ps {

void StepSender::give_lease(Member& member) {
  member.lease = *ledger_.lease(member.batch);  // the ledger never runs out of samples
  send_lease(member);
}

void StepSender::send_lease(const Member& member) {
  if (!member.lease) return;
  const LeaseGiven given{member.lease_id(), member.lease->epoch};
  socket_.send(member.routing_id, with_samples(header_of(given), member.lease->samples));
}

void StepSender::give_weights(Member& member, std::int64_t version, bool is_again) {
  const Weights weights = server_.weights();
  check(weights.version == version, "a worker begins with the newest weights");
  member.version = version;
  announce(member, is_again);
  if (is_again) member.pull.restart();
  const PackedWeights sent = member.pull.compress(weights.tensors);
  socket_.send(member.routing_id,
               with_packed(header_of(WeightsGiven{version, sent.sequence, sent.is_whole}), sent.packed));
}

void StepSender::announce(const Member& member, bool is_again) {
  for (ShardLink* other : others_) {
    other->send_worker({.worker = member.id,
                        .incarnation = member.incarnation,
                        .routing_id = member.routing_id,
                        .version = member.version,
                        .is_again = is_again});
  }
}

void StepSender::announce_removal(const Member& member) {
  for (ShardLink* other : others_) other->send_worker({.worker = member.id, .incarnation = member.incarnation});
}

}  // namespace sluice::ps
