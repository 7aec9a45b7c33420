#include "ps/virtual_cluster.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/error.h"

namespace sluice::ps {

VirtualCluster::VirtualCluster(Server& server, VirtualOptions options, Compute compute)
    : server_(server),
      options_(std::move(options)),
      stragglers_(options_.stragglers),
      compute_(std::move(compute)),
      workers_(options_.workers.size()),
      delivered_(options_.workers.size()) {
  for (std::size_t w = 0; w < workers_.size(); ++w)
    workers_[w].link = std::make_shared<VirtualLink>(server_, WorkerId{static_cast<int>(w)}, options_.compression);
}

VirtualUpdate VirtualCluster::next_update() {
  while (ready_.empty()) {
    begin_ready_workers();
    advance_to_next_event();
    ready_ = server_.advance(now_);
  }
  UpdateRecord done = std::move(ready_.front());
  if (done.is_dropped) {
    throw DivergedError("update ", done.update.version,
                        ": the pushes are finite, but not what comes of them; lower the learning rate");
  }
  ready_.erase(ready_.begin());
  return as_virtual_update(std::move(done));
}

void VirtualCluster::begin_ready_workers() {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    const WorkerId worker{static_cast<int>(w)};
    if (workers_[w].arrives < 0 && server_.may_begin(worker)) begin(worker);
  }
}

void VirtualCluster::begin(WorkerId id) {
  Worker& worker = workers_[index_of(id)];
  const WorkerCosts& costs = options_.workers[index_of(id)];
  SliceClock clock(costs, stragglers_.stall_s(id, worker.steps), to_s(server_.policy().deadline));
  compute_(id, worker.steps++, clock);
  auto push = worker.link->take();
  check(push.has_value(), "a worker's step in virtual time pushes");
  worker.push = std::move(*push);
  const auto bytes = static_cast<double>(worker.link->bytes());
  const double send_s = costs.bytes_per_s > 0 ? bytes / costs.bytes_per_s : 0;
  worker.push.times = {.compute_s = clock.compute_s(),
                       .stall_s = clock.stall_s(),
                       .send_s = send_s,
                       .idle_s = to_s(now_ - worker.idle_since)};
  worker.arrives = now_ + clock.compute_time() + from_s(send_s);
}

// Advances to the next arrival of a push (the first worker's if equal), or to an earlier end of a grace window.
void VirtualCluster::advance_to_next_event() {
  Worker* next = nullptr;
  for (Worker& worker : workers_) {
    if (worker.arrives >= 0 && (next == nullptr || worker.arrives < next->arrives)) next = &worker;
  }
  const std::optional<Nanoseconds> due = server_.due_at();
  if (due && (next == nullptr || *due <= next->arrives)) {
    now_ = std::max(now_, *due);
    return;
  }
  check(next != nullptr, "a worker computes or an update is due in virtual time");
  now_ = next->arrives;
  deliver(*next);
}

void VirtualCluster::deliver(Worker& worker) {
  const PushRecord record = worker.push.record;
  delivered_[index_of(record.worker)] = {worker.push.scores, worker.push.times, worker.link->bytes()};
  const PushAnswer answer = server_.push(record, std::move(worker.push.tensors), now_);
  if (answer == PushAnswer::kRefused)
    throw DivergedError("push ", record.sequence, " of worker ", index_of(record.worker),
                        " has numbers that are not finite; lower the learning rate");
  check(answer == PushAnswer::kCommitted, "a push in virtual time is committed");
  worker.arrives = -1;
  worker.idle_since = now_;
}

VirtualUpdate VirtualCluster::as_virtual_update(UpdateRecord done) {
  VirtualUpdate update{.at = now_};
  for (const PushRecord& record : done.update.pushes)
    update.pushes.push_back({.record = record,
                             .scores = delivered_[index_of(record.worker)].scores,
                             .times = delivered_[index_of(record.worker)].times,
                             .staleness = staleness_of(record, done.update.version),
                             .bytes = delivered_[index_of(record.worker)].bytes});
  update.done = std::move(done);
  return update;
}

}  // namespace sluice::ps
