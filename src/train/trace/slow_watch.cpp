#include "train/trace/slow_watch.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/concat.h"
#include "core/host.h"
#include "core/text.h"

namespace sluice::train {
namespace {

using nlohmann::ordered_json;
using profiler::Part;

constexpr std::array<const char*, 3> kNames{"device", "data", "sum"};  // [What]

bool needs_links(const ordered_json& event) { return event.at("what") == kNames[2] && !event.at("is_over"); }

// "ranks 0 - 2: 48 Mbit/s, ranks 1 - 2: 47 Mbit/s, all others: 930 Mbit/s and more"
std::string describe(const std::vector<comm::LinkRate>& slowest_first) {
  std::vector<std::string> texts;
  for (const comm::LinkRate& link : slowest_first) {
    const std::string rate = concat(fixed(link.bytes_per_s * 8e-6, 0), " Mbit/s");
    const bool is_slow = 2 * link.bytes_per_s < slowest_first.back().bytes_per_s;
    if (!is_slow && slowest_first.size() > 1) {
      texts.push_back(concat(texts.empty() ? "all links: " : "all others: ", rate, " and more"));
      break;
    }
    texts.push_back(concat("ranks ", link.from, " - ", link.to, ": ", rate));
  }
  return join(texts, ", ");
}

ordered_json to_json(const std::vector<comm::LinkRate>& links) {
  ordered_json json = ordered_json::array();
  for (const comm::LinkRate& link : links)
    json.push_back({{"ranks", {link.from, link.to}}, {"bytes_per_s", link.bytes_per_s}});
  return json;
}

// "rank 1 (node1), replica 0, device 1 (cpu:1) takes 2.1 times as long to compute"
std::string headline(const ordered_json& event) {
  const std::string what = event.at("what");
  const std::string process = event.contains("rank") ? concat("rank ", event.at("rank").get<int>(), " (",
                                                              event.at("host").get<std::string>(), "), ")
                                                     : "";
  const bool is_over = event.at("is_over"), is_device = what == kNames[0];
  if (!is_device) {
    const char* const subject = what == kNames[1] ? "the wait for data" : "the sum over the processes";
    return concat(process, subject, is_over ? " no longer delays the steps" : " delays the steps");
  }
  const std::string device = concat("replica ", event.at("replica").get<int>(), ", device ",
                                    event.at("device").get<int>(), " (", event.at("name").get<std::string>(), ")");
  return concat(process, device,
                is_over ? " computes as fast as before again"
                        : concat(" takes ", fixed(event.at("factor"), 1), " times as long to compute"));
}

}  // namespace

void SlowWatch::after_step(const SeenStep& step) {
  if (step.plan != plan_) begin_plan(step.plan);
  if (step.stats.has_events) send_events();
  const bool is_full = step.stats.samples == plan_.global_batch;  // the last batch of an epoch may be short
  if (is_full && !step.breakdown.slots.empty()) watch(step);      // none with profile.level = "off"
}

// Other micro-batches take another time for a sample. If the work can be compared, the end of what is slow is noticed.
void SlowWatch::begin_plan(const Plan& plan) {
  const std::vector<double> ratios = work_ratios_(plan);
  std::erase_if(watched_, [&](const auto& watched) { return ratios.empty() || !watched.second.is_slow(); });
  for (auto& [watched, slowness] : watched_)
    if (watched.what == What::kDevice) slowness.rescale(ratios.at(index(watched.device)));
  if (computing_.normal_s() > 0) beside_before_s_ = computing_.normal_s();
  computing_ = {};
  plan_ = plan;
}

void SlowWatch::send_events() {
  const std::string own = std::exchange(unsent_, ordered_json::array()).dump();
  const auto of_all = others_ != nullptr ? comm::gather_texts(*others_, own, /*root=*/0) : std::vector{own};
  std::vector<ordered_json> events;
  for (const std::string& of_process : of_all)
    for (ordered_json& event : ordered_json::parse(of_process)) events.push_back(std::move(event));
  std::vector<comm::LinkRate> links;
  if (others_ != nullptr) {
    const char* const wanted = std::ranges::any_of(events, needs_links) ? "links" : "none";
    if (comm::broadcast_text(*others_, wanted, /*root=*/0) == "links") links = comm::measure_link_rates(*others_);
  }
  for (ordered_json& event : events) {
    const std::string evidence = event.at("evidence");
    event.erase("evidence");
    if (needs_links(event)) event["links"] = to_json(links);
    report_(concat(headline(event), " since step ", event.at("since_step").get<std::int64_t>(), " (",
                   fixed(event.at("now_ms"), 1), " ms a step, ", fixed(event.at("before_ms"), 1), " before)", evidence,
                   needs_links(event) ? concat("; ", describe(links)) : ""),
            event);
  }
}

void SlowWatch::watch(const SeenStep& step) {
  std::vector<Changed> changes;
  const double step_s = to_s(step.breakdown.step);
  const auto add = [&](const Watched& watched, double seconds, double beside_s = 0) {
    const auto change = watched_[watched].add(step.number, beside_s + seconds, step_s);
    if (change) changes.push_back({watched, beside_s, *change});
  };
  Nanoseconds computing = 0, load = 0, sum = 0;  // longest of the slots
  for (const profiler::SlotBreakdown& slot : step.breakdown.slots) {
    const Nanoseconds own = slot.forward() + slot.backward();
    const std::int64_t samples = samples_of(setup_, plan_, slot.replica);
    // Batches in the order of their lengths take more and more time, or less and less.
    if (samples > 0 && !setup_.config.data.by_length)
      add({What::kDevice, slot.replica, slot.device}, to_s(own) / static_cast<double>(samples));
    computing = std::max(computing, own);
    load = std::max(load, slot.load());
    sum = std::max(sum, slot[Part::kAllReduce]);
  }
  if (computing > 0) static_cast<void>(computing_.add(step.number, to_s(computing), step_s));
  if (const double beside_s = computing_.normal_s(); beside_s > 0) {
    shift_waits(beside_s);
    add({.what = What::kData}, to_s(load), beside_s);
    if (setup_.process.rank == 0 && others_ != nullptr) add({.what = What::kSum}, to_s(sum), beside_s);
  }
  for (const Changed& changed : changes) add_event(changed, step.number);
}

// What is slow since before this plan has a normal time with the former computing time in it.
void SlowWatch::shift_waits(double beside_s) {
  if (beside_before_s_ == 0) return;
  for (auto& [watched, slowness] : watched_)
    if (watched.what != What::kDevice) slowness.rescale(1, beside_s - beside_before_s_);
  beside_before_s_ = 0;
}

void SlowWatch::add_event(const Changed& changed, std::int64_t step) {
  const auto& [watched, beside_s, change] = changed;
  const double of_step =
      watched.what == What::kDevice ? static_cast<double>(samples_of(setup_, plan_, watched.replica)) : 1;
  const bool is_over = !watched_[watched].is_slow();
  ordered_json event{{"step", step}, {"what", kNames.at(static_cast<std::size_t>(watched.what))}};
  event.update(location_of(watched));
  event.update({{"factor", change.factor},
                {"since_step", change.since_step},
                {"before_ms", 1e3 * std::max(change.before_s - beside_s, 0.0) * of_step},
                {"now_ms", 1e3 * std::max(change.now_s - beside_s, 0.0) * of_step},
                {"is_over", is_over},
                {"evidence", is_over ? "" : others_as_before()}});
  unsent_.push_back(std::move(event));
}

ordered_json SlowWatch::location_of(const Watched& watched) const {
  ordered_json location = ordered_json::object();
  if (watched.what == What::kSum) return location;
  if (others_ != nullptr) location = {{"rank", setup_.process.rank}, {"host", host_name()}};
  if (watched.what == What::kData) return location;
  const int replica = index(watched.replica), device = index(watched.device);
  const auto devices = devices_for(setup_, plan_.devices() * plan_.replicas).devices;
  location.update({{"replica", replica},
                   {"device", device},
                   {"name", device::to_string(devices.at(replica * plan_.devices() + device))}});
  return location;
}

std::string SlowWatch::others_as_before() const {
  const auto changes = [](const auto& watched) { return watched.second.is_slow() || watched.second.may_change(); };
  return std::ranges::count_if(watched_, changes) == 1 ? "; all else in this process is as before" : "";
}

}  // namespace sluice::train
