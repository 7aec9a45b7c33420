#include "report/worker_totals.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace sluice::report {
namespace {

constexpr std::array kPushMeans{"compute_s", "idle_s", "send_s", "sleep_s", "staleness"};
constexpr std::array kNews{"joined", "left", "failed", "lost"};
constexpr std::int64_t kMostWorkers = 1'000'000;
constexpr std::int64_t kMostOfAPush = 1'000'000'000;  // keeps sums over many pushes within 64 bits

}  // namespace

using Json = nlohmann::ordered_json;

std::optional<double> WorkerTotals::mean(std::string_view name) const {
  const auto found = means.find(name);
  if (found == means.end() || found->second.count == 0) return std::nullopt;
  return found->second.sum / static_cast<double>(found->second.count);
}

std::int64_t WorkerTotals::count(std::string_view what) const {
  const auto found = events.find(what);
  return found == events.end() ? 0 : found->second;
}

bool WorkerTotals::has_joined(std::string_view where, const std::string& process_id) const {
  const auto found = processes.find(where);
  if (found == processes.end()) return false;
  return process_id.empty() || found->second.contains(process_id) || found->second.contains("");
}

std::optional<int> worker_in(const Json& line) {
  const auto worker = count_at(line, "worker", kMostWorkers);
  return worker ? std::optional(static_cast<int>(*worker)) : std::nullopt;
}

void add_push(WorkersTotals& workers, const Json& line) {
  const auto number = worker_in(line);
  if (!number) return;
  WorkerTotals& worker = workers[*number];
  ++worker.pushes;
  worker.examples += count_at(line, "examples", kMostOfAPush).value_or(0);
  for (const char* name : kPushMeans) {
    const auto value = number_at(line, name);
    if (!value || !std::isfinite(*value)) continue;
    WorkerTotals::Mean& mean = worker.means[name];
    mean.sum += *value;
    ++mean.count;
  }
  if (const auto staleness = count_at(line, "staleness", kMostOfAPush))
    worker.most_stale = std::max(worker.most_stale.value_or(0), *staleness);
}

void add_worker_event(WorkersTotals& workers, const Json& line) {
  const auto number = worker_in(line);
  const std::string what = text_at(line, "what").value_or("");
  if (!number || std::ranges::find(kNews, what) == kNews.end()) return;
  WorkerTotals& worker = workers[*number];
  ++worker.events[what];
  if (what == "joined")
    worker.processes[text_at(line, "where").value_or("")].insert(text_at(line, "session").value_or(""));
  if (what == "failed" || what == "lost")
    worker.trouble = {.step = integer_at(line, "step"), .what = what, .why = text_at(line, "why").value_or("")};
}

}  // namespace sluice::report
