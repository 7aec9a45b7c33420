#include "report/run_log.h"

#include <cerrno>
#include <cmath>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::report {
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

struct WeightedSum {
  double sum = 0;
  double weight = 0;

  void add(double value, double of_weight) {
    if (!std::isfinite(value) || !(of_weight > 0)) return;
    sum += value * of_weight;
    weight += of_weight;
  }
};

// The parts of a rate. A part that a line does not name was nothing in that step.
struct PartSums {
  std::map<std::string, double> sums;
  double weight = 0;

  void add(const std::string& name, std::optional<double> part, double of_weight) {
    if (part && std::isfinite(*part)) sums[name] += *part * of_weight;
  }
};

// What the step lines add up to.
class RecordSums {
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
    if (!(time > 0) || !std::isfinite(time)) return;
    if (is_finite_at(line, "net_bytes_per_s")) add_network(line, time);
    if (is_finite_at(line, "flops_per_s")) add_flops(line, time);
    add_busy(line, time);
  }

  [[nodiscard]] Numbers means() const {
    Numbers means;
    for (const auto& [name, sum] : sums_) {
      if (sum.weight > 0) means[name] = sum.sum / sum.weight;
    }
    for (const PartSums* parts : {&network_, &flops_}) {
      for (const auto& [name, sum] : parts->sums) means[name] = sum / parts->weight;
    }
    return means;
  }

  [[nodiscard]] std::vector<double> busy() const {
    std::vector<double> busy;
    for (const WeightedSum& device : busy_) busy.push_back(device.weight > 0 ? device.sum / device.weight : 0.0);
    return busy;
  }

 private:
  static bool is_finite_at(const Json& line, const char* name) {
    const auto number = number_at(line, name);
    return number && std::isfinite(*number);
  }

  void add_network(const Json& line, double time) {
    network_.weight += time;
    const auto net = line.find("net");
    if (net == line.end() || !net->is_object()) return;
    for (const auto& [interface, rates] : net->items()) {
      if (!rates.is_object()) continue;
      for (const char* way : {"sent", "received"})
        network_.add(concat("net/", interface, "/", way), number_at(rates, way), time);
    }
  }

  void add_flops(const Json& line, double time) {
    flops_.weight += time;
    const auto kinds = line.find("flops_per_s_by_kind");
    if (kinds == line.end() || !kinds->is_object()) return;
    for (const auto& [kind, rate] : kinds->items())
      flops_.add(concat("flops_per_s_by_kind/", kind), number_of(rate), time);
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
  PartSums network_, flops_;
  std::vector<WeightedSum> busy_;
};

// Higher top-1; of texts, and where there is none, lower loss.
bool is_better(const Json& one, const Json& other) {
  const auto top1 = number_at(one, "top1"), other_top1 = number_at(other, "top1");
  if (top1 && other_top1 && !one.contains("perplexity")) return *top1 > *other_top1;
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
    if (event == "checkpoint") add_checkpoint(line);
    if (event == "resume") add_resume(line);
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
    if (number_at(line, "spans_dropped").value_or(0) > 0) ++log_.incomplete_steps;
    sums_.add(line);
  }

  void add_checkpoint(const Json& line) {
    if (const auto step = integer_at(line, "step")) log_.checkpoints.insert(*step);
  }

  // Where the records do not lead up to the checkpoint it is another run's.
  void add_resume(const Json& line) {
    const auto step = integer_at(line, "step");
    if (log_.steps > 0 && step == log_.last_step) log_.checkpoints.insert(*step);
    log_.resumed_at = step;
    log_.steps_since_resume = 0;
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
  RecordSums sums_;
};

// A path's status; not_found where there is nothing. Throws where nobody can tell.
fs::file_status status_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none)
    throw DataError(concat(printable(path.string()), " cannot be read: ", error.message(),
                           "; check the permissions of it and of the folders above"));
  return status;
}

void require_run_dir(const fs::path& dir) {
  const std::string name = printable(dir.string());
  const fs::file_status status = status_of(dir);
  if (fs::is_regular_file(status))
    throw ConfigError(concat(name, " is a file; give the run's directory, which holds metrics.jsonl"));
  if (!fs::is_directory(status))
    throw ConfigError(concat("there is no run directory ", name, "; give the --run-dir of a `sluice train`"));
  if (!fs::exists(status_of(dir / "metrics.jsonl")))
    throw ConfigError(concat(name, " holds no metrics.jsonl, so it is no run; give the --run-dir of a `sluice train`"));
}

std::ifstream open_metrics(const fs::path& file) {
  const std::string name = printable(file.string());
  if (!fs::is_regular_file(status_of(file)))
    throw DataError(concat(name, " is no file; give the --run-dir of a `sluice train`"));
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (in.is_open()) return in;
  const std::string reason = errno != 0 ? std::generic_category().message(errno) : "it cannot be opened";
  throw DataError(concat(name, " cannot be read: ", reason, "; check its permissions"));
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

std::optional<std::int64_t> integer_at(const Json& object, const char* name) {
  constexpr double kLargest = 9e15;
  const auto number = number_at(object, name);
  if (!number || !(std::abs(*number) < kLargest)) return std::nullopt;
  return static_cast<std::int64_t>(*number);
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
    const auto replica = integer_at(entry, "replica"), device = integer_at(entry, "stage");
    if (!replica || !device) continue;
    PlaceTimes& place = places.emplace_back();
    place.replica = static_cast<int>(*replica);
    place.device = static_cast<int>(*device);
    place.steps = integer_at(entry, "steps").value_or(0);
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
  const std::string name = printable(file.string());
  std::ifstream in = open_metrics(file);
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
  if (in.bad()) throw DataError(concat(name, " cannot be read to its end; check the disk"));
  RunLog log = reader.finish();
  if (log.counts.empty() && log.unreadable_lines > 0)
    throw DataError(concat(name, " holds ", log.unreadable_lines,
                           " lines and none is a record of a run; it is damaged or not Sluice's: copy it again"));
  return log;
}

}  // namespace sluice::report
