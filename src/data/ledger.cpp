#include "data/ledger.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "core/check.h"
#include "data/sampler.h"

namespace sluice::data {

namespace {

constexpr std::int64_t kMostEpochsAhead = 10'000;  // limit for a restored state

std::vector<std::int64_t> order_of(const LedgerOptions& options, std::int64_t epoch) {
  return options.shuffle ? epoch_order(options.seed, epoch, options.samples) : sequential_order(options.samples);
}

// Sorts returned samples in the order of the epoch, so that a restored run leases the same batches.
std::deque<std::int64_t> in_order(const std::vector<std::int64_t>& samples, const std::vector<std::int64_t>& order) {
  const std::set<std::int64_t> waiting(samples.begin(), samples.end());
  std::deque<std::int64_t> sorted;
  std::ranges::copy_if(order, std::back_inserter(sorted),
                       [&](std::int64_t sample) { return waiting.contains(sample); });
  return sorted;
}

}  // namespace

Ledger::Ledger(const LedgerOptions& options) : options_(options) {
  check(options.samples > 0, "a ledger of at least one sample");
}

bool is_sound(const LedgerState& state, const LedgerOptions& options) {
  if (state.first < 0) return false;
  std::int64_t number = state.first;
  for (const LedgerState::Epoch& epoch : state.open) {
    const std::int64_t waiting = std::ssize(epoch.returned) + options.samples - epoch.next;
    if (epoch.next < 0 || epoch.next > options.samples || epoch.pushed < 0 || epoch.lost < 0) return false;
    if (waiting + epoch.pushed + epoch.lost != options.samples) return false;
    const std::vector<std::int64_t> order = order_of(options, number++);
    std::set<std::int64_t> begun(order.begin(), order.begin() + epoch.next);
    for (const std::int64_t sample : epoch.returned) {
      if (begun.erase(sample) != 1) return false;
    }
  }
  return true;
}

Ledger::Ledger(const LedgerOptions& options, const LedgerState& state) : Ledger(options) {
  check(is_sound(state, options), "a state that fits the options of the ledger");
  first_ = state.first;
  for (const LedgerState::Epoch& saved : state.open) {
    const std::int64_t waiting = options_.samples - saved.pushed - saved.lost;
    std::vector<std::int64_t> order = order_of(options_, first_ + std::ssize(open_));
    std::deque<std::int64_t> returned = in_order(saved.returned, order);
    open_.push_back({.order = std::move(order),
                     .next = saved.next,
                     .returned = std::move(returned),
                     .counts = {.waiting = waiting, .pushed = saved.pushed, .lost = saved.lost}});
  }
  forget_finished_epochs();
}

LedgerState Ledger::state() const {
  LedgerState state{.first = first_};
  for (const Epoch& epoch : open_)
    state.open.push_back({.next = epoch.next, .pushed = epoch.counts.pushed, .lost = epoch.counts.lost});
  for (const auto& [id, lease] : out_) {
    std::vector<std::int64_t>& returned = state.open[lease.epoch - first_].returned;
    returned.insert(returned.end(), lease.samples.begin(), lease.samples.end());
  }
  for (std::size_t i = 0; i < open_.size(); ++i) {
    std::vector<std::int64_t>& returned = state.open[i].returned;
    returned.insert(returned.end(), open_[i].returned.begin(), open_[i].returned.end());
  }
  return state;
}

std::optional<Lease> Ledger::lease(std::int64_t most) {
  check(most > 0, "a lease of at least one sample");
  const auto number = epoch_with_work();
  if (!number) return std::nullopt;
  Epoch& epoch = open_[*number];
  Lease lease{.id = LeaseId{next_lease_++}, .epoch = first_ + static_cast<std::int64_t>(*number)};
  const bool takes_all = epoch.counts.waiting - options_.slack <= most;
  const std::int64_t count = takes_all ? epoch.counts.waiting : most;
  while (std::ssize(lease.samples) < count) {
    if (epoch.returned.empty()) {
      lease.samples.push_back(epoch.order[epoch.next++]);
    } else {
      lease.samples.push_back(epoch.returned.front());
      epoch.returned.pop_front();
    }
  }
  epoch.counts.waiting -= count;
  epoch.counts.leased += count;
  if (epoch.next == options_.samples) epoch.order = {};  // later epochs may begin before this one is over
  out_.emplace(lease.id, lease);
  return lease;
}

bool Ledger::take_waiting(Epoch& epoch, std::int64_t sample) {
  if (const auto found = std::ranges::find(epoch.returned, sample); found != epoch.returned.end()) {
    epoch.returned.erase(found);
    return true;
  }
  const auto begin = epoch.order.begin() + std::min<std::ptrdiff_t>(epoch.next, std::ssize(epoch.order));
  const auto found = std::find(begin, epoch.order.end(), sample);
  if (found == epoch.order.end()) return false;
  epoch.returned.insert(epoch.returned.end(), begin, found);
  epoch.next = found - epoch.order.begin() + 1;
  return true;
}

std::optional<Lease> Ledger::lease_again(std::int64_t number, const std::vector<std::int64_t>& samples) {
  const bool may_have_begun = number - first_ - std::ssize(open_) < kMostEpochsAhead;
  if (number < first_ || !may_have_begun || (options_.epochs > 0 && number >= options_.epochs)) return std::nullopt;
  while (number - first_ >= std::ssize(open_)) begin_epoch();
  Epoch& epoch = open_[number - first_];
  for (const std::int64_t sample : samples) {
    if (!take_waiting(epoch, sample)) return std::nullopt;
  }
  const std::int64_t count = std::ssize(samples);
  epoch.counts.waiting -= count;
  epoch.counts.leased += count;
  if (epoch.next == options_.samples) epoch.order = {};
  Lease lease{.id = LeaseId{next_lease_++}, .epoch = number, .samples = samples};
  out_.emplace(lease.id, lease);
  return lease;
}

void Ledger::push(LeaseId lease, const std::vector<std::int64_t>& positions) {
  check_positions(lease, positions);
  const Lease taken = take_out(lease);
  Epoch& epoch = open_[taken.epoch - first_];
  auto next_pushed = positions.begin();
  for (std::int64_t position = 0; position < std::ssize(taken.samples); ++position) {
    const bool has_run = next_pushed != positions.end() && *next_pushed == position;
    if (!has_run) epoch.returned.push_back(taken.samples[position]);
    if (has_run) ++next_pushed;
  }
  const std::int64_t count = std::ssize(positions);
  epoch.counts.leased -= std::ssize(taken.samples);
  epoch.counts.pushed += count;
  epoch.counts.waiting += std::ssize(taken.samples) - count;
  forget_finished_epochs();
}

void Ledger::push_first(LeaseId lease, std::int64_t count) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(count));
  std::iota(positions.begin(), positions.end(), std::int64_t{0});
  push(lease, positions);
}

void Ledger::push_all(LeaseId lease) {
  const auto found = out_.find(lease);
  check(found != out_.end(), "a lease that is out");
  push_first(lease, std::ssize(found->second.samples));
}

void Ledger::give_back(LeaseId lease) { push(lease, {}); }

void Ledger::lose(LeaseId lease) {
  const Lease taken = take_out(lease);
  LedgerCounts& counts = open_[taken.epoch - first_].counts;
  counts.leased -= std::ssize(taken.samples);
  counts.lost += std::ssize(taken.samples);
  forget_finished_epochs();
}

LedgerCounts Ledger::counts(std::int64_t epoch) const {
  if (const auto found = with_losses_.find(epoch); found != with_losses_.end()) return found->second;
  if (epoch < first_) return {.pushed = options_.samples};
  if (epoch - first_ < std::ssize(open_)) return open_[epoch - first_].counts;
  return {.waiting = options_.samples};
}

std::int64_t Ledger::epochs_over() const { return first_; }

void Ledger::check_positions(LeaseId lease, const std::vector<std::int64_t>& positions) const {
  const auto found = out_.find(lease);
  check(found != out_.end(), "a lease that is out");
  const bool rises = std::ranges::adjacent_find(positions, std::greater_equal{}) == positions.end();
  const bool fits =
      positions.empty() || (positions.front() >= 0 && positions.back() < std::ssize(found->second.samples));
  check(rises && fits, "pushed positions within their lease, in ascending order");
}

Lease Ledger::take_out(LeaseId lease) {
  const auto found = out_.find(lease);
  check(found != out_.end(), "a lease that is out");
  Lease taken = std::move(found->second);
  out_.erase(found);
  return taken;
}

std::optional<std::size_t> Ledger::epoch_with_work() {
  for (std::size_t number = 0; number < open_.size(); ++number) {
    if (open_[number].counts.waiting > 0) return number;
  }
  const std::int64_t next = first_ + std::ssize(open_);
  if (options_.epochs > 0 && next >= options_.epochs) return std::nullopt;
  begin_epoch();
  return open_.size() - 1;
}

void Ledger::begin_epoch() {
  open_.push_back({.order = order_of(options_, first_ + std::ssize(open_)), .counts = {.waiting = options_.samples}});
}

void Ledger::forget_finished_epochs() {
  while (!open_.empty() && open_.front().counts.waiting == 0 && open_.front().counts.leased == 0) {
    if (open_.front().counts.lost > 0) with_losses_.emplace(first_, open_.front().counts);
    open_.pop_front();
    ++first_;
  }
}

}  // namespace sluice::data
