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
  return silence_of(member) <= silence_of_dead_ ? Greeting::kRival : Greeting::kReplacement;
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

std::vector<WorkerId> Members::all_that(const std::function<bool(const Member&)>& condition) const {
  std::vector<WorkerId> found;
  for (const auto& [worker, member] : members_) {
    if (condition(member)) found.push_back(worker);
  }
  return found;
}

}  // namespace sluice::ps
