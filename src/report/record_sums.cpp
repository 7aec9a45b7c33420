#include "report/record_sums.h"

#include <cmath>

#include "core/concat.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

// Weight of a line's mfu: peak FLOPs of all devices in `time`.
double device_time(const Json& line, double mfu, double time) {
  const auto flops = number_at(line, "flops_per_s");
  if (!flops) return time;  // from a worker's records
  return mfu > 0 ? *flops / mfu * time : 0;
}

bool is_finite_at(const nlohmann::ordered_json& line, const char* name) {
  const auto number = number_at(line, name);
  return number && std::isfinite(*number);
}

}  // namespace

void RecordSums::WeightedSum::add(double value, double of_weight) {
  if (!std::isfinite(value) || !(of_weight > 0)) return;
  sum += value * of_weight;
  weight += of_weight;
}

void RecordSums::WeightedSum::add(const WeightedSum& more) {
  sum += more.sum;
  weight += more.weight;
}

void RecordSums::PartSums::add(const std::string& name, std::optional<double> part, double of_weight) {
  if (part && std::isfinite(*part)) sums[name] += *part * of_weight;
}

void RecordSums::PartSums::add(const PartSums& more) {
  for (const auto& [name, sum] : more.sums) sums[name] += sum;
  weight += more.weight;
}

void RecordSums::add(const RecordSums& more) {
  for (const auto& [name, sum] : more.sums_) sums_[name].add(sum);
  network_.add(more.network_);
  flops_.add(more.flops_);
  if (busy_.size() < more.busy_.size()) busy_.resize(more.busy_.size());
  for (std::size_t i = 0; i < more.busy_.size(); ++i) busy_[i].add(more.busy_[i]);
  timed_steps_ += more.timed_steps_;
  timed_ms_ += more.timed_ms_;
}

void RecordSums::add(const Json& line) {
  const double time = number_at(line, "step_ms").value_or(0);
  for (const auto& [name, value] : line.items()) add_number(line, name, value, time);
  if (!(time > 0) || !std::isfinite(time)) return;
  if (is_finite_at(line, "net_bytes_per_s")) add_network(line, time);
  if (is_finite_at(line, "flops_per_s")) add_flops(line, time);
  add_busy(line, time);
  if (is_finite_at(line, "forward_ms")) add_timed(time);
}

void RecordSums::add_number(const Json& line, const std::string& name, const Json& value, double time) {
  const auto number = number_of(value);
  if (!number || name == "time_s") return;
  if (name == "mfu") {
    sums_[name].add(*number, device_time(line, *number, time));
  } else if (name.ends_with("_per_s")) {
    sums_[name].add(*number, time);
  } else if (name.ends_with("_ms") || name == "sync_bytes") {
    sums_[name].add(*number, 1);
  }
}

void RecordSums::add_timed(double time) {
  ++timed_steps_;
  timed_ms_ += time;
}

Numbers RecordSums::means() const {
  Numbers means;
  for (const auto& [name, sum] : sums_) {
    if (sum.weight > 0) means[name] = sum.sum / sum.weight;
  }
  for (const PartSums* parts : {&network_, &flops_}) {
    for (const auto& [name, sum] : parts->sums) means[name] = sum / parts->weight;
  }
  return means;
}

std::vector<double> RecordSums::busy() const {
  std::vector<double> busy;
  for (const WeightedSum& device : busy_) busy.push_back(device.weight > 0 ? device.sum / device.weight : 0.0);
  return busy;
}

std::optional<double> RecordSums::busy_mean() const {
  WeightedSum all;
  for (const WeightedSum& device : busy_) all.add(device);
  return all.weight > 0 ? std::optional(all.sum / all.weight) : std::nullopt;
}

double RecordSums::timed_step_ms() const {
  return timed_steps_ > 0 ? timed_ms_ / static_cast<double>(timed_steps_) : 0;
}

void RecordSums::add_network(const Json& line, double time) {
  network_.weight += time;
  const auto net = line.find("net");
  if (net == line.end() || !net->is_object()) return;
  for (const auto& [interface, rates] : net->items()) {
    if (!rates.is_object()) continue;
    for (const char* way : {"sent", "received"})
      network_.add(concat("net/", interface, "/", way), number_at(rates, way), time);
  }
}

void RecordSums::add_flops(const Json& line, double time) {
  flops_.weight += time;
  const auto kinds = line.find("flops_per_s_by_kind");
  if (kinds == line.end() || !kinds->is_object()) return;
  for (const auto& [kind, rate] : kinds->items())
    flops_.add(concat("flops_per_s_by_kind/", kind), number_of(rate), time);
}

void RecordSums::add_busy(const Json& line, double time) {
  const auto list = line.find("device_busy");
  if (list == line.end() || !list->is_array()) return;
  if (busy_.size() < list->size()) busy_.resize(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    if (const auto share = number_of((*list)[i])) busy_[i].add(*share, time);
  }
}

}  // namespace sluice::report
