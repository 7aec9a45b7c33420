#include "ps/net/push_intake.h"

#include "core/error.h"
#include "ps/net/refusals.h"

namespace sluice::ps {
namespace {

// The answer to a push of another incarnation or a repeated one; nothing if the push may count.
std::optional<PushAnswer> rejection_of(const Member& member, const PushRecord& push) {
  if (push.worker != member.id || push.incarnation != member.incarnation.number) return PushAnswer::kUnknown;
  return push.sequence <= member.pushed ? std::optional(PushAnswer::kDuplicate) : std::nullopt;
}

}  // namespace

void throw_not_finite(const Member& member, std::int64_t sequence) {
  throw DivergedError("push ", sequence, " of ", worker_named(member.id, member.where),
                      " has numbers that are not finite; lower the learning rate");
}

void PushIntake::on_push_ahead(Member& member, const PushAhead& ahead, const Frames& frames) {
  if (ahead.push != member.key_of(member.pushed + 1) || ahead.lease != member.lease_id()) return;
  if (member.own_part) return;  // the push is already complete here
  if (!member.ahead.take(ahead, frames, server_.shape())) ++malformed_;
}

PushIntake::Result PushIntake::on_push_made(Member& member, const PushMade& push, const Frames& frames) {
  const PushRecord& record = push.record;
  if (const auto answer = rejection_of(member, record)) return {.answer = answer};
  auto tensors = tensors_of(push, frames);
  if (!tensors || !fits(member, push)) {
    ++malformed_;
    return {.answer = PushAnswer::kOutOfTurn};
  }
  if (member.own_part && member.own_part->key() == record.key()) return {};  // a shard server's part is missing
  if (push.is_ahead) {
    auto shards = member.ahead.finish(record.key(), server_.shape());
    if (!shards) return {.is_incomplete = true};  // some spans were lost
    tensors->shards = std::move(*shards);
  }
  OwnPart own{push, std::move(*tensors)};
  if (others_hold(member, record.key())) return {.whole = std::move(own)};
  member.own_part = std::move(own);
  return {};
}

bool PushIntake::fits(const Member& member, const PushMade& push) const {
  return member.lease && push.lease == member.lease_id() &&
         push.record.examples <= static_cast<std::int64_t>(member.lease->samples.size()) &&
         push.record.payload == server_.policy().payload;
}

std::optional<Tensors> PushIntake::tensors_of(const PushMade& push, const Frames& frames) const {
  TensorsShape shape = server_.shape();
  if (push.is_ahead) {
    shape.shards.clear();
    return tensors_after_header(frames, shape);
  }
  const auto packed = packed_after_header(frames, shape);
  return packed ? unpack(compression_, shape, *packed) : std::nullopt;
}

bool PushIntake::others_hold(const Member& member, const PushKey& push) const {
  const PartState state = part_state(others_, push);
  if (state == PartState::kNotFinite) throw_not_finite(member, push.sequence);
  return state == PartState::kFinite;
}

std::optional<OwnPart> PushIntake::take_whole(Member& member) const {
  if (!member.own_part || !others_hold(member, member.own_part->key())) return std::nullopt;
  return std::exchange(member.own_part, std::nullopt);
}

}  // namespace sluice::ps
