#include "comm/regroup.h"

#include <algorithm>

#include "core/concat.h"

namespace sluice::comm {
namespace {

std::vector<int> without(const std::vector<int>& members, const std::set<int>& others) {
  std::vector<int> left;
  std::ranges::set_difference(members, others, std::back_inserter(left));
  return left;
}

}  // namespace

void Regroup::send(int to, RegroupMessage message) {
  message.number = group_.number;
  outbox_.emplace_back(to, std::move(message));
}

void Regroup::send_to_others(const std::vector<int>& members, const RegroupMessage& message) {
  for (const int member : members) {
    if (member != self_ && !dead_.contains(member)) send(member, message);
  }
}

void Regroup::lost(int member, bool is_dead) {
  if (!why_not_.empty() || member == self_) return;
  if (gone_.contains(member) && (!is_dead || dead_.contains(member))) return;
  if (is_guest() && !is_dead) {
    return give_up(concat("process ", member,
                          " of the run sends no heartbeats to this one; check the network between them, then start "
                          "this process again"));
  }
  note_lost(member, is_dead);
  const RegroupMessage message{.kind = Kind::kLost, .member = member, .is_dead = is_dead};
  if (group_.contains(member)) {
    send_to_others(group_.members, message);
  } else if (!is_dead) {
    send(member, message);  // a guest, which must not wait
  }
  go_on();
}

void Regroup::note_lost(int member, bool is_dead) {
  gone_.insert(member);
  if (is_dead) dead_.insert(member);
  ready_.erase(member);
  if (group_.contains(member)) is_disturbed_ = true;
}

void Regroup::ready(std::int64_t steps_done) {
  if (!why_not_.empty()) return;
  is_disturbed_ = true;
  steps_done_ = steps_done;
  go_on();
}

void Regroup::receive(int from, const RegroupMessage& message) {
  if (!why_not_.empty()) return;
  const bool is_current = message.number == group_.number && group_.contains(from);
  switch (message.kind) {
    case Kind::kLost:
      if (message.member == self_) return take_own_loss(message.number);
      if (!is_current) return;
      note_lost(message.member, message.is_dead);
      break;
    case Kind::kReady: take_ready(from, message); break;
    case Kind::kPropose:
      if (!is_current || follows_ != from) return;
      accepted_ = {from, message.attempt, message.group};
      return send(from, {.kind = Kind::kAccept, .attempt = message.attempt});
    case Kind::kAccept:
      if (message.number != group_.number || !proposed_ || message.attempt != proposed_->attempt) return;
      accepts_.insert(from);
      break;
    case Kind::kCommit:
      if (message.group.number > group_.number) take(message.group);
      break;
  }
  go_on();
}

void Regroup::take_own_loss(int number) {
  if (is_guest() || number >= group_.number) give_up("the other processes go on without this one");
}

void Regroup::take_ready(int from, const RegroupMessage& message) {
  const bool from_guest = !message.group.contains(from);
  if (message.number < group_.number) {  // it has missed a commit, or is no longer a member
    if (from_guest || group_.contains(from)) return send(from, {.kind = Kind::kCommit, .group = group_});
    outbox_.emplace_back(from, RegroupMessage{.kind = Kind::kLost, .number = message.number, .member = from});
    return;
  }
  if (message.number > group_.number) take(message.group);
  if (!why_not_.empty() || gone_.contains(from)) return;
  ready_[from] = message;
  if (!from_guest) is_disturbed_ = true;
}

void Regroup::go_on() {
  if (!is_waiting()) return;
  const std::vector<int> left = without(group_.members, gone_);
  if (left.empty())
    return give_up(
        "all processes of the run have ended before this one joined; if the run was not complete, start all again with "
        "--resume auto");
  left.front() == self_ ? coordinate() : follow(left.front());
}

void Regroup::follow(int coordinator) {
  if (follows_ == coordinator) return;
  follows_ = coordinator;
  send(coordinator, {.kind = Kind::kReady, .steps_done = *steps_done_, .group = group_, .accepted = accepted_});
}

void Regroup::coordinate() {
  follows_ = self_;
  std::vector<int> here = without(group_.members, gone_);
  if (std::ranges::any_of(here, [&](int member) { return member != self_ && !ready_.contains(member); })) return;
  if (!have_majority(here)) {
    return give_up(concat("only ", here.size(), " of ", group_.members.size(),
                          " processes can be reached, which is no majority: the others may go on without this one"));
  }
  if (const auto accepted = highest_accepted()) return commit(accepted->group);
  std::ranges::copy(guests(), std::back_inserter(here));
  std::ranges::sort(here);
  if (!proposed_ || proposed_->group.members != here) propose(here);
  if (proposed_ && std::ranges::includes(accepts_, proposed_->group.members)) commit(proposed_->group);
}

bool Regroup::has_guests() const {
  const std::vector<int> left = without(group_.members, gone_);
  return !left.empty() && left.front() == self_ && !guests().empty();
}

std::set<int> Regroup::guests() const {
  std::set<int> guests;
  for (const auto& [process, ready] : ready_) {
    if (!group_.contains(process)) guests.insert(process);
  }
  return guests;
}

std::optional<Proposal> Regroup::highest_accepted() const {
  std::optional<Proposal> highest = accepted_;
  for (const auto& [member, ready] : ready_) highest = std::max(highest, ready.accepted);
  return highest;
}

bool Regroup::have_majority(const std::vector<int>& members) const {
  const std::vector<int> voters = without(group_.members, dead_);
  const std::size_t twice = 2 * members.size();
  return twice > voters.size() || (twice == voters.size() && members.front() == voters.front());
}

void Regroup::propose(const std::vector<int>& members) {
  std::map<int, std::int64_t> steps_done{{self_, *steps_done_}};
  for (const auto& [member, ready] : ready_) steps_done[member] = ready.steps_done;
  // The leader keeps the records, so it goes on leading, even if others have done one more step.
  const auto leader = steps_done.find(group_.leader);
  const auto newest = std::ranges::max_element(steps_done, {}, [](const auto& entry) { return entry.second; });
  const auto [chosen, steps] = leader != steps_done.end() && leader->second != kNoState ? *leader : *newest;
  Group next{.number = group_.number + 1, .members = members, .leader = chosen, .steps_done = steps};
  if (next.steps_done == kNoState) return give_up("no process that is left has a whole state");
  proposed_ = {self_, ++attempts_, std::move(next)};
  accepts_ = {self_};
  send_to_others(members, {.kind = Kind::kPropose, .attempt = attempts_, .group = proposed_->group});
}

void Regroup::commit(const Group& group) {
  const Group next = group;
  send_to_others(next.members, {.kind = Kind::kCommit, .group = next});
  take(next);
  go_on();
}

void Regroup::take(const Group& group) {
  const bool is_member = group.contains(self_);
  if (!is_guest() && !is_member) return give_up("the other processes go on without this one");
  // They join, or follow the coordinator of this group.
  for (const int guest : guests()) send(guest, {.kind = Kind::kCommit, .group = group});
  group_ = group;
  follows_.reset();
  accepted_.reset();
  proposed_.reset();
  ready_.clear();
  accepts_.clear();
  attempts_ = 0;
  if (!is_member) return;
  bool regroups_again = false;
  for (const int member : group_.members) {
    if (!gone_.contains(member)) continue;
    regroups_again = true;
    // The others do not know it if that member was a guest, or this one was.
    send_to_others(group_.members, {.kind = Kind::kLost, .member = member, .is_dead = dead_.contains(member)});
  }
  if (regroups_again) return;
  is_disturbed_ = false;
  steps_done_.reset();
}

void Regroup::give_up(std::string why) {
  why_not_ = std::move(why);
  is_disturbed_ = true;
  send_to_others(group_.members, {.kind = Kind::kLost, .member = self_, .is_dead = true});
}

}  // namespace sluice::comm
