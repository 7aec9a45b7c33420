#include "ps/net/members.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace sluice::ps {

Greeting Members::judge(const Hello& hello) const {
  const auto found = members_.find(hello.worker);
  if (found == members_.end()) return Greeting::kNew;
  const Member& member = found->second;
  if (member.state() == WorkerState::kLeaving) return Greeting::kAfterLeaving;
  if (member.process_id == hello.process_id)
    return hello.abandons == member.incarnation ? Greeting::kAnew : Greeting::kRepeated;
  const bool is_alive = drained_at_ - member.last_message_at <= silence_of_dead_;
  return is_alive ? Greeting::kRival : Greeting::kReplacement;
}

Member& Members::add(Member member) {
  const WorkerId worker = member.id;
  first_incarnations_.emplace(worker, member.incarnation.number);
  const auto [at, is_new] = members_.emplace(worker, std::move(member));
  check(is_new, "an admitted worker is new");
  return at->second;
}

void Members::remove(WorkerId worker, bool has_left, Nanoseconds now) {
  members_.erase(worker);
  empty_since_ = now;
  last_one_left_ = has_left;
}

Member* Members::find(WorkerId worker) {
  const auto found = members_.find(worker);
  return found == members_.end() ? nullptr : &found->second;
}

Member* Members::find_by_connection(const std::string& routing_id) {
  const auto found =
      std::ranges::find_if(members_, [&](const auto& entry) { return entry.second.routing_id == routing_id; });
  return found == members_.end() ? nullptr : &found->second;
}

std::vector<WorkerId> Members::silent_for(Nanoseconds limit) const {
  std::vector<WorkerId> silent;
  for (const auto& [worker, member] : members_) {
    if (drained_at_ - member.last_message_at > limit) silent.push_back(worker);
  }
  return silent;
}

std::vector<WorkerId> Members::leaving(std::optional<Nanoseconds> now) const {
  std::vector<WorkerId> gone;
  for (const auto& [worker, member] : members_) {
    if (member.leaves_at && (!now || *now >= *member.leaves_at)) gone.push_back(worker);
  }
  return gone;
}

}  // namespace sluice::ps
