#include "ps/net/update_queue.h"

#include <algorithm>
#include <utility>

namespace sluice::ps {

void UpdateQueue::add(NetworkUpdate update, std::vector<PushKey> untimed, Nanoseconds now) {
  made_.push_back({std::move(update), std::move(untimed), now});
}

void UpdateQueue::set_send_time(const PushKey& push, double send_s) {
  for (Made& made : made_) {
    const auto found =
        std::ranges::find(made.update.pushes, push, [](const PushDone& done) { return done.record.key(); });
    if (found == made.update.pushes.end()) continue;
    found->times.send_s = send_s;
    std::erase(made.untimed, push);
  }
}

void UpdateQueue::forget(WorkerId worker) {
  for (Made& made : made_) std::erase_if(made.untimed, [&](const PushKey& push) { return push.worker == worker; });
}

std::optional<Nanoseconds> UpdateQueue::due_at() const {
  constexpr Nanoseconds kSendTimesTimeout = 1'000'000'000;
  return made_.empty() ? std::nullopt : std::optional(made_.front().since + kSendTimesTimeout);
}

std::optional<NetworkUpdate> UpdateQueue::take(Nanoseconds now) {
  if (made_.empty() || (!made_.front().untimed.empty() && now < *due_at())) return std::nullopt;
  NetworkUpdate update = std::move(made_.front().update);
  made_.pop_front();
  return update;
}

}  // namespace sluice::ps
