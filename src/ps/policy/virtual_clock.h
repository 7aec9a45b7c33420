// virtual_clock: virtual time in whole nanoseconds, and the pushes that arrive in it. Time advances from event to
// event. Events of the same time are ordered: first an update that becomes due, then pushes, by worker.
// Threads: one. Errors: BugError if no event is left.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "ps/policy/push_record.h"

namespace sluice::ps {

class VirtualClock {
 public:
  [[nodiscard]] Nanoseconds now() const { return now_; }
  void schedule_push(WorkerId worker, Nanoseconds delay) { arrivals_.emplace(now_ + delay, worker); }

  // Advances to the next event. Returns the worker whose push arrives; nothing if the update of `due_at` is first.
  std::optional<WorkerId> advance(std::optional<Nanoseconds> due_at = std::nullopt) {
    if (due_at && (arrivals_.empty() || *due_at <= arrivals_.top().first)) {
      now_ = std::max(now_, *due_at);
      return std::nullopt;
    }
    check(!arrivals_.empty(), "a push on its way or an update that becomes due");
    const auto [arrives_at, worker] = arrivals_.top();
    arrivals_.pop();
    now_ = arrives_at;
    return worker;
  }

 private:
  using Arrival = std::pair<Nanoseconds, WorkerId>;

  Nanoseconds now_ = 0;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_;
};

}  // namespace sluice::ps
