#include "tune/server_step.h"

#include <algorithm>

namespace sluice::tune {
namespace {

// Servers working in parallel; on one machine they are limited by its cores.
double at_once(const ServerUse& use) { return use.cores > 0 ? std::min(use.servers, use.cores) : use.servers; }

// The messages between servers (see the header), each with the latency of a worker's push.
double messages_seconds(const ServerUse& use) {
  constexpr int kMessages = 6;
  return use.servers > 1 ? kMessages * use.cost.push.latency_s : 0;
}

double update_seconds(const ServerUse& use, double bytes) {
  const double share = bytes / at_once(use);
  return use.cost.update.at(share) + (use.pushes_of_update() - 1) * use.cost.merge.at(share) + messages_seconds(use);
}

double wait_for_all(const ServerUse& use, const WorkerStep& worker) {
  const double share = worker.bytes / at_once(use);
  const double push = use.cost.push.transfer(share), pull = use.cost.pull.transfer(share);
  const double others = use.workers - 1;
  return worker.slowest +
         std::max(others * std::max(push, pull), others * (push + pull) - worker.computing - use.cost.pull.latency_s);
}

double least_step(const ServerUse& use, const WorkerStep& worker, double loading) {
  const double share = worker.bytes / at_once(use);
  const double busy = use.cost.push.transfer(share) + update_seconds(use, worker.bytes) + use.cost.pull.transfer(share);
  const double by_server = use.workers * busy;
  if (use.cores == 0) return by_server;
  // Threads of a worker. If all compute at once, `computing` already includes contention, and each has its share of the
  // cores.
  const double threads = std::min<double>(use.threads, static_cast<double>(use.cores) / use.workers);
  const double work = threads * worker.computing + loading + at_once(use) * busy;
  return std::max(by_server, use.workers * work / use.cores);
}

}  // namespace

LinkCost ServerUse::push_link() const {
  LinkCost link = cost.push;
  if (link.bytes_per_s) *link.bytes_per_s *= at_once(*this);
  return link;
}

ServedStep served_step(const ServerUse& use, const WorkerStep& worker) {
  ServedStep step{.push = worker.pushing + use.cost.push.latency_s,
                  .update = update_seconds(use, worker.bytes),
                  .pull = use.cost.pull.at(worker.bytes / at_once(use))};
  step.load = std::max(0.0, worker.loading - step.pull);
  step.wait = use.waits_for_all ? wait_for_all(use, worker)
                                : std::max(0.0, least_step(use, worker, step.load) - worker.computing - step.seconds());
  return step;
}

}  // namespace sluice::tune
