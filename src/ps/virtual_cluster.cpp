#include "ps/virtual_cluster.h"

#include <algorithm>
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
    if (const auto arrived = clock_.advance(server_.due_at())) deliver(*arrived);
    ready_ = server_.advance(clock_.now());
  }
  UpdateRecord done = std::move(ready_.front());
  if (done.is_dropped) {
    throw DivergedError("update ", done.update.version,
                        ": the pushes are finite, but their result is not; lower the learning rate");
  }
  ready_.erase(ready_.begin());
  return as_virtual_update(std::move(done));
}

void VirtualCluster::begin_ready_workers() {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    const WorkerId worker{static_cast<int>(w)};
    if (!workers_[w].push && server_.may_begin(worker)) begin(worker);
  }
}

void VirtualCluster::begin(WorkerId id) {
  Worker& worker = workers_[index_of(id)];
  const WorkerCosts& costs = options_.workers[index_of(id)];
  SliceClock slice_clock(costs, stragglers_.stall_s(id, worker.steps), to_s(server_.policy().deadline));
  compute_(id, worker.steps++, slice_clock);
  worker.push = worker.link->take();
  check(worker.push.has_value(), "a worker's step in virtual time pushes");
  const auto bytes = static_cast<double>(worker.link->bytes());
  const double send_s = costs.bytes_per_s > 0 ? bytes / costs.bytes_per_s : 0;
  worker.push->times = {.compute_s = slice_clock.compute_s(),
                        .stall_s = slice_clock.stall_s(),
                        .send_s = send_s,
                        .idle_s = to_s(clock_.now() - worker.idle_since)};
  clock_.schedule_push(id, slice_clock.compute_time() + from_s(send_s));
}

void VirtualCluster::deliver(WorkerId id) {
  Worker& worker = workers_[index_of(id)];
  Push push = std::exchange(worker.push, std::nullopt).value();
  delivered_[index_of(id)] = {push.scores, push.times, worker.link->bytes()};
  const PushAnswer answer = server_.push(push.record, std::move(push.tensors), clock_.now());
  if (answer == PushAnswer::kRefused)
    throw DivergedError("push ", push.record.sequence, " of worker ", index_of(id),
                        " has numbers that are not finite; lower the learning rate");
  check(answer == PushAnswer::kCommitted, "a push in virtual time is committed");
  worker.idle_since = clock_.now();
}

VirtualUpdate VirtualCluster::as_virtual_update(UpdateRecord done) {
  VirtualUpdate update{.at = clock_.now()};
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
