#include "report/html/history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include "core/concat.h"
#include "report/record_fields.h"
#include "report/run_log.h"
#include "report/worker_totals.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostInterfaces = 16;
constexpr std::size_t kMostDrawnWorkers = 24;
constexpr std::size_t kMostHappenings = 300;
constexpr std::size_t kMostTransitions = 1000;
constexpr std::int64_t kMostStale = 64;

double part(const Json& line, const char* name) {
  const double value = number_at(line, name).value_or(0);
  return std::isfinite(value) ? std::max(value, 0.0) : 0.0;
}

}  // namespace

std::map<std::string, double> parts_of(const Json& line) {
  if (!number_at(line, "forward_ms")) return {};
  const double skew = part(line, "skew_ms");
  const double bubble = part(line, "bubble_fill_ms") + part(line, "bubble_steady_ms") + part(line, "bubble_drain_ms");
  return {{"load", part(line, "load_ms")},
          {"forward", part(line, "forward_ms")},
          {"backward", part(line, "backward_ms")},
          {"transfer", part(line, "transfer_ms")},
          {"allreduce", std::max(part(line, "allreduce_exposed_ms") - skew, 0.0)},
          {"skew", skew},
          {"optimizer", part(line, "optimizer_ms")},
          {"bubble", bubble},
          {"other", std::max(part(line, "idle_ms") - bubble, 0.0)}};
}

void History::add(const Json& line, const std::string& event) {
  if (event == "step") {
    add_step(line);
  } else if (event == "eval") {
    add_evaluation(line);
  } else if (event == "push") {
    add_push(line);
  } else {
    add_happening(line, event);
  }
}

void History::add_value(const char* curve, const Json& line, const char* field) {
  const auto value = number_at(line, field), step = number_at(line, "step");
  if (value && step) curves_[curve].add({*step, number_at(line, "time_s").value_or(0), *value});
}

void History::add_step(const Json& line) {
  static const std::set<std::string, std::less<>> kCurves{"loss",          "top1", "lr",           "step_ms",
                                                          "samples_per_s", "mfu",  "frozen_layers"};
  const auto step = number_at(line, "step");
  if (!step) return;
  const double time = number_at(line, "time_s").value_or(0);
  for (const auto& [name, recorded] : line.items()) {  // one pass: a run may have millions of lines
    const auto value = kCurves.contains(name) ? number_of(recorded) : std::nullopt;
    if (value) curves_[name].add({*step, time, *value});
  }
  if (!std::isfinite(*step)) return;
  const auto parts = parts_of(line);
  if (!parts.empty()) parts_.add(*step, time, parts);
  add_network(line);
}

void History::add_network(const Json& line) {
  const auto step = number_at(line, "step"), all = number_at(line, "net_bytes_per_s");
  if (!step || !all || !std::isfinite(*all)) return;
  std::map<std::string, double> rates;  // a missing interface carried no bytes
  for (const auto& [name, series] : network_) rates[name] = 0;
  const Json net = line.value("net", Json::object());
  for (const auto& [interface, recorded] : net.items()) {
    for (const char* way : {"sent", "received"}) {
      const auto rate = recorded.is_object() ? number_at(recorded, way) : std::nullopt;
      const std::string name = concat(interface, " ", way);
      if (rate && (network_.contains(name) || network_.size() < kMostInterfaces)) rates[name] = *rate;
    }
  }
  for (const auto& [name, rate] : rates) network_[name].add({*step, number_at(line, "time_s").value_or(0), rate});
}

void History::add_evaluation(const Json& line) {
  add_value("eval_loss", line, "loss");
  for (const std::string& score : score_names(line)) add_value(("eval_" + score).c_str(), line, score.c_str());
}

void History::add_push(const Json& line) {
  const auto number = worker_in(line);
  const auto step = number_at(line, "step");
  if (!number || !step) return;
  if (const auto stale = integer_at(line, "staleness")) ++staleness_[std::clamp(*stale, std::int64_t{0}, kMostStale)];
  if (!workers_.contains(*number) && workers_.size() >= kMostDrawnWorkers) {
    ++more_workers_;
    return;
  }
  Worker& worker = workers_[*number];
  const double time = number_at(line, "time_s").value_or(0);
  const auto add = [&](Thinned& series, const char* field) {
    if (const auto value = number_at(line, field)) series.add({*step, time, *value});
  };
  add(worker.staleness, "staleness");
  add(worker.examples, "examples");
  add(worker.compute_s, "compute_s");
}

void History::add_happening(const Json& line, const std::string& event) {
  static const std::set<std::string_view> kTold{"transition", "freeze", "resume",     "fault",  "lost", "joined",
                                                "replan",     "slow",   "checkpoint", "worker", "cache"};
  if (!kTold.contains(event)) return;
  if (event == "transition" && transitions_.size() < kMostTransitions) transitions_.push_back(line);
  if (happenings_.size() < kMostHappenings) {
    happenings_.push_back(line);
  } else {
    ++more_happenings_;
  }
}

Json History::json() const {
  Json history{{"curves", Json::object()}, {"network", Json::object()}, {"workers", Json::array()}};
  for (const auto& [name, series] : curves_) {
    if (!series.empty()) history["curves"][name] = series.json();
  }
  for (const auto& [name, series] : network_) {
    if (!series.empty()) history["network"][name] = series.json();
  }
  for (const auto& [number, worker] : workers_) {
    history["workers"].push_back({{"worker", number},
                                  {"staleness", worker.staleness.json()},
                                  {"examples", worker.examples.json()},
                                  {"compute_s", worker.compute_s.json()}});
  }
  history["staleness"] = Json::array();
  for (const auto& [stale, count] : staleness_) history["staleness"].push_back({stale, count});
  history["parts"] = parts_.empty() ? Json(nullptr) : parts_.json();
  history["happenings"] = happenings_;
  history["more_happenings"] = more_happenings_;
  history["pushes_of_more_workers"] = more_workers_;
  return history;
}

}  // namespace sluice::report
