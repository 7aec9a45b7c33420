#include "ps/policy/coordinator.h"

#include <algorithm>

#include "core/check.h"

namespace sluice::ps {

Coordinator::Coordinator(const SyncPolicy& policy, std::int64_t version) : policy_(policy), version_(version) {
  check_policy(policy, "a parameter server's policy");
}

void Coordinator::remember_incarnations(WorkerId worker, int incarnations) {
  std::vector<std::int64_t>& last_committed = workers_[worker].last_committed;
  if (std::ssize(last_committed) < incarnations) last_committed.resize(static_cast<std::size_t>(incarnations));
}

std::map<WorkerId, int> Coordinator::incarnations() const {
  std::map<WorkerId, int> incarnations;
  for (const auto& [worker, known] : workers_) incarnations[worker] = static_cast<int>(known.last_committed.size());
  return incarnations;
}

void Coordinator::remember(const PushRecord& record) {
  remember_incarnations(record.worker, record.incarnation);
  std::vector<std::int64_t>& last_committed = workers_[record.worker].last_committed;
  last_committed[record.incarnation - 1] = std::max(last_committed[record.incarnation - 1], record.sequence);
}

std::int64_t Coordinator::last_committed(WorkerId worker, int incarnation) const {
  const auto found = workers_.find(worker);
  const bool is_known =
      found != workers_.end() && incarnation >= 1 && incarnation <= std::ssize(found->second.last_committed);
  return is_known ? found->second.last_committed[static_cast<std::size_t>(incarnation - 1)] : 0;
}

void Coordinator::redo(const Update& update) {
  check(update.version == version_ + 1, "updates are repeated in order");
  version_ = update.version;
  for (const PushRecord& record : update.pushes) remember(record);
}

void Coordinator::restore_push(const PushRecord& record, Nanoseconds now) {
  check(!is_waiting(record.worker) && workers() == 0, "no joined worker and no waiting push of this worker");
  remember(record);
  waiting_.emplace(record.worker, record);
  if (policy_.quorum == 1 && policy_.grace == 0) quorum_since_ = now;
}

int Coordinator::join(WorkerId worker, Nanoseconds now) {
  const std::int64_t clock = clock_of_joining_worker(workers_[worker]);
  Worker& it = workers_[worker];
  check(!it.is_here, "a worker joins only if it is absent");
  it.is_here = true;
  it.clock = clock;
  it.last_committed.push_back(0);
  ++clocks_here_[clock];
  ++here_;
  waiting_here_ += is_waiting(worker) ? 1 : 0;
  if (workers() >= policy_.workers) is_open_ = true;
  check_quorum(now);
  return static_cast<int>(it.last_committed.size());
}

// At least the slowest clock, so that no worker waits for this one; at most what a push can reach within the bound.
std::int64_t Coordinator::clock_of_joining_worker(const Worker& worker) const {
  const std::int64_t least = slowest().value_or(worker.clock);
  const std::int64_t clock = std::max(worker.clock, least);
  return policy_.staleness == kUnbounded ? clock : std::min(clock, least + policy_.staleness + 1);
}

void Coordinator::leave(WorkerId worker, Nanoseconds now) {
  const auto found = workers_.find(worker);
  check(found != workers_.end() && found->second.is_here, "a worker leaves only after it has joined");
  found->second.is_here = false;
  found->second.begun.reset();
  forget_clock(found->second.clock);
  --here_;
  waiting_here_ -= is_waiting(worker) ? 1 : 0;
  check_quorum(now);
}

void Coordinator::forget_clock(std::int64_t clock) {
  const auto found = clocks_here_.find(clock);
  if (--found->second == 0) clocks_here_.erase(found);
}

void Coordinator::open(Nanoseconds now) {
  is_open_ = true;
  check_quorum(now);
}

std::int64_t Coordinator::begin(WorkerId worker) {
  check(may_begin(worker), "a worker begins only if may_begin()");
  workers_.at(worker).begun = version_;
  return version_;
}

std::int64_t Coordinator::begin_again(WorkerId worker) {
  std::optional<std::int64_t>& begun = workers_.at(worker).begun;
  check(begun.has_value(), "begin_again() follows begin()");
  return begun.emplace(version_);
}

PushAnswer Coordinator::push(const PushRecord& record, Nanoseconds now) {
  const auto found = workers_.find(record.worker);
  if (found == workers_.end()) return PushAnswer::kUnknown;
  Worker& worker = found->second;
  const auto incarnations = static_cast<int>(worker.last_committed.size());
  if (record.incarnation < 1 || record.incarnation > incarnations) return PushAnswer::kUnknown;
  std::int64_t& last_committed = worker.last_committed[record.incarnation - 1];
  if (record.sequence <= last_committed) return PushAnswer::kDuplicate;
  if (record.incarnation < incarnations || !worker.is_here) return PushAnswer::kUnknown;
  if (record.sequence != last_committed + 1 || worker.begun != record.base_version) return PushAnswer::kOutOfTurn;
  last_committed = record.sequence;
  worker.begun.reset();
  forget_clock(worker.clock);
  ++clocks_here_[++worker.clock];
  waiting_.emplace(record.worker, record);
  ++waiting_here_;
  check_quorum(now);
  return PushAnswer::kCommitted;
}

std::optional<Update> Coordinator::take_update(Nanoseconds now) {
  const auto due = due_at();
  if (!due || *due > now) return std::nullopt;
  Update update{.version = ++version_};
  for (const auto& [worker, record] : waiting_) update.pushes.push_back(record);
  waiting_.clear();
  waiting_here_ = 0;
  quorum_since_.reset();
  return update;
}

std::optional<Nanoseconds> Coordinator::due_at() const {
  if (!quorum_since_) return std::nullopt;
  const bool all_have_pushed = waiting_here_ == here_;
  return all_have_pushed ? *quorum_since_ : *quorum_since_ + policy_.grace;
}

bool Coordinator::may_begin(WorkerId worker) const {
  const auto found = workers_.find(worker);
  if (!is_open_ || found == workers_.end() || !found->second.is_here) return false;
  if (found->second.begun || is_waiting(worker)) return false;
  return policy_.staleness == kUnbounded || found->second.clock - *slowest() <= policy_.staleness;
}

std::optional<std::int64_t> Coordinator::slowest() const {
  if (clocks_here_.empty()) return std::nullopt;
  return clocks_here_.begin()->first;
}

bool Coordinator::has_quorum() const {
  if (!is_open_ || waiting_.empty()) return false;
  return waiting_here_ >= (policy_.quorum == 0 ? here_ : std::min(policy_.quorum, here_));
}

void Coordinator::check_quorum(Nanoseconds now) {
  if (!has_quorum())
    quorum_since_.reset();
  else if (!quorum_since_)
    quorum_since_ = now;
}

}  // namespace sluice::ps
