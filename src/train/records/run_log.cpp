#include "train/records/run_log.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include "core/concat.h"
#include "core/error.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::optional<double> number_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto& name = value.get_ref<const std::string&>();
  if (name == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (name == "Infinity") return std::numeric_limits<double>::infinity();
  if (name == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

// Whole numbers beyond what a double holds exactly are none of ours.
std::optional<std::int64_t> integer_at(const Json& object, const char* name) {
  const auto number = number_at(object, name);
  if (!number || !(std::abs(*number) < 9e15)) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

struct WeightedSum {
  double sum = 0;
  double weight = 0;

  void add(double value, double of_weight) {
    if (!std::isfinite(value) || !(of_weight > 0)) return;
    sum += value * of_weight;
    weight += of_weight;
  }
};

// What the step lines add up to.
class StepSums {
 public:
  void add(const Json& line) {
    const double time = number_at(line, "step_ms").value_or(0);
    for (const auto& [name, value] : line.items()) {
      const auto number = number_of(value);
      if (!number || name == "time_s") continue;
      if (name.ends_with("_per_s") || name == "mfu") {
        sums_[name].add(*number, time);
      } else if (name.ends_with("_ms") || name == "sync_bytes") {
        sums_[name].add(*number, 1);
      }
    }
    add_network(line, time);
    add_busy(line, time);
  }

  [[nodiscard]] Numbers means() const {
    Numbers means;
    for (const auto& [name, sum] : sums_) {
      if (sum.weight > 0) means[name] = sum.sum / sum.weight;
    }
    return means;
  }

  [[nodiscard]] std::vector<double> busy() const {
    std::vector<double> busy;
    for (const WeightedSum& device : busy_) busy.push_back(device.weight > 0 ? device.sum / device.weight : 0.0);
    return busy;
  }

 private:
  void add_network(const Json& line, double time) {
    const auto net = line.find("net");
    if (net == line.end() || !net->is_object()) return;
    for (const auto& [interface, rates] : net->items()) {
      if (!rates.is_object()) continue;
      for (const char* way : {"sent", "received"}) {
        if (const auto rate = number_at(rates, way)) sums_[concat("net/", interface, "/", way)].add(*rate, time);
      }
    }
  }

  void add_busy(const Json& line, double time) {
    const auto list = line.find("device_busy");
    if (list == line.end() || !list->is_array()) return;
    if (busy_.size() < list->size()) busy_.resize(list->size());
    for (std::size_t i = 0; i < list->size(); ++i) {
      if (const auto share = number_of((*list)[i])) busy_[i].add(*share, time);
    }
  }

  std::map<std::string, WeightedSum> sums_;
  std::vector<WeightedSum> busy_;
};

// Higher top-1, or where there is none lower loss.
bool is_better(const Json& one, const Json& other) {
  const auto top1 = number_at(one, "top1"), other_top1 = number_at(other, "top1");
  if (top1 && other_top1) return *top1 > *other_top1;
  const auto loss = number_at(one, "loss"), other_loss = number_at(other, "loss");
  return loss && other_loss && *loss < *other_loss;
}

class Reader {
 public:
  explicit Reader(fs::path dir) { log_.dir = std::move(dir); }

  void add(const Json& line, const std::string& event) {
    ++log_.counts[event];
    log_.time_s = number_at(line, "time_s").value_or(log_.time_s);
    if (event == "step") add_step(line);
    if (event == "eval") add_evaluation(line);
    if (event == "plan") log_.plan = line;
    if (event == "fault") log_.fault = line;
    if (event == "fault") log_.ends_in_fault = true;
    if (event == "resume") log_.steps_since_resume = 0;
    if (event == "summary") log_.summary = line;
    if (event == "step" || event == "plan" || event == "resume") {  // the run went on after what ended it before
      log_.summary = Json::object();
      log_.ends_in_fault = false;
    }
  }

  void add_unreadable(bool is_torn) {
    if (is_torn) {
      log_.is_torn = true;
    } else {
      ++log_.unreadable_lines;
    }
  }

  RunLog finish() {
    log_.means = sums_.means();
    log_.device_busy = sums_.busy();
    return std::move(log_);
  }

 private:
  void add_step(const Json& line) {
    ++log_.steps;
    ++log_.steps_since_resume;
    log_.last_step = integer_at(line, "step").value_or(log_.last_step);
    if (const auto loss = number_at(line, "loss")) log_.last_loss = loss;
    sums_.add(line);
  }

  void add_evaluation(const Json& line) {
    if (log_.evaluations.empty()) {
      log_.evaluations.assign(3, line);
    } else if (is_better(line, log_.evaluations[1])) {
      log_.evaluations[1] = line;
    }
    log_.evaluations[2] = line;
  }

  RunLog log_;
  StepSums sums_;
};

void require_run_dir(const fs::path& dir) {
  std::error_code error;
  if (fs::is_regular_file(dir, error))
    throw ConfigError(concat(dir.string(), " is a file; give the run's directory, which holds metrics.jsonl"));
  if (!fs::is_directory(dir, error))
    throw ConfigError(concat("there is no run directory ", dir.string(), "; give the --run-dir of a `sluice train`"));
  if (!fs::exists(dir / "metrics.jsonl", error))
    throw ConfigError(
        concat(dir.string(), " holds no metrics.jsonl, so it is no run; give the --run-dir of a `sluice train`"));
}

}  // namespace

std::optional<double> number_in(const Numbers& numbers, std::string_view name) {
  const auto found = numbers.find(name);
  return found == numbers.end() ? std::nullopt : std::optional(found->second);
}

std::optional<double> number_at(const Json& object, const char* name) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(name);
  return found == object.end() ? std::nullopt : number_of(*found);
}

std::optional<std::string> text_at(const Json& object, const char* name) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(name);
  return found == object.end() || !found->is_string() ? std::nullopt : std::optional(found->get<std::string>());
}

std::vector<PlaceTimes> place_times(const Json& breakdown) {
  std::vector<PlaceTimes> places;
  if (!breakdown.is_array()) return places;
  for (const Json& entry : breakdown) {
    const auto replica = integer_at(entry, "replica"), stage = integer_at(entry, "stage");
    if (!replica || !stage) continue;
    PlaceTimes& place = places.emplace_back();
    place.replica = static_cast<int>(*replica);
    place.stage = static_cast<int>(*stage);
    for (const auto& [name, value] : entry.items()) {
      const auto number = number_of(value);
      if (number && name.ends_with("_ms")) place.ms[name] = *number;
    }
  }
  return places;
}

std::string RunLog::outcome() const {
  if (const auto outcome = text_at(summary, "outcome")) return *outcome;
  return ends_in_fault ? "failed" : "unfinished";
}

double RunLog::wall_s() const { return number_at(summary, "wall_s").value_or(time_s); }

std::int64_t RunLog::count(std::string_view event) const {
  const auto found = counts.find(event);
  return found == counts.end() ? 0 : found->second;
}

RunLog read_run_log(const fs::path& run_dir) {
  require_run_dir(run_dir);
  const fs::path file = run_dir / "metrics.jsonl";
  std::error_code error;
  std::ifstream in;
  if (fs::is_regular_file(file, error)) in.open(file, std::ios::binary);
  if (!in.is_open())
    throw DataError(concat(file.string(), " is no file that can be read; check its kind and permissions"));
  Reader reader(run_dir);
  for (std::string line; std::getline(in, line);) {
    const bool is_last = in.eof();  // no line break after it
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (const auto event = text_at(record, "event")) {
      reader.add(record, *event);
    } else {
      reader.add_unreadable(is_last && line.starts_with('{'));
    }
  }
  if (in.bad()) throw DataError(concat(file.string(), " cannot be read to its end; check the disk"));
  RunLog log = reader.finish();
  if (log.counts.empty() && log.unreadable_lines > 0)
    throw DataError(concat(file.string(), " holds ", log.unreadable_lines,
                           " lines and none is a record of a run; it is damaged or not Sluice's: copy it again"));
  return log;
}

}  // namespace sluice::train
