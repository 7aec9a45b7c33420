#include "ps/net/waiting_pushes.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/failpoint.h"

namespace sluice::ps {
namespace {

CommittedPush as_committed(const WaitingPush& push, const Tensors& tensors) {
  const std::vector<std::int64_t>& leased = push.lease.samples;
  return {.push = {push.record, push.scores, push.times, tensors},
          .epoch = push.lease.epoch,
          .samples = {leased.begin(), leased.begin() + push.record.examples}};
}

}  // namespace

void WaitingPushes::add(WaitingPush push, const Tensors& tensors) {
  const PushKey key = push.record.key();
  const WaitingPush& added = pushes_.insert_or_assign(key.worker, std::move(push)).first->second;
  if (journal_ == nullptr) return;
  journal_->write_push(as_committed(added, tensors));
  if (journal_->must_make_durable()) pending_.push_back(key);
}

WaitingPush WaitingPushes::take(WorkerId worker) {
  auto node = pushes_.extract(worker);
  check(!node.empty(), "the push of an update waits for it");
  return std::move(node.mapped());
}

void WaitingPushes::set_send_time(WorkerId worker, std::optional<double> send_s) {
  const auto found = pushes_.find(worker);
  if (found == pushes_.end()) return;
  if (send_s) found->second.times.send_s = *send_s;
  found->second.is_timed = true;
}

bool WaitingPushes::is_pending(const PushKey& key) const {
  return std::ranges::any_of(
      pending_, [&](const PushKey& push) { return push.worker == key.worker && push.incarnation == key.incarnation; });
}

std::vector<PushKey> WaitingPushes::make_durable() {
  std::vector<PushKey> pushes = std::exchange(pending_, {});
  if (pushes.empty()) return pushes;
  journal_->make_durable();
  failpoint("push-settled");
  return pushes;
}

void WaitingPushes::write_update(const UpdateRecord& decided, bool is_durable) {
  if (journal_ == nullptr) return;
  journal_->write_update(decided);
  if (is_durable) journal_->make_durable();
  failpoint("update-decided");
}

void WaitingPushes::begin_journal(const Server& server) {
  std::vector<CommittedPush> waiting;
  for (const auto& [worker, push] : pushes_) waiting.push_back(as_committed(push, server.waiting().at(worker)));
  journal_->begin(server.weights(), waiting);
}

}  // namespace sluice::ps
