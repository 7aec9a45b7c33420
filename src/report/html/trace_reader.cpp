#include "report/html/trace_reader.h"

#include <cmath>
#include <istream>
#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/text.h"
#include "storage/unpacked_file.h"

namespace sluice::report {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostSteps = 3;
constexpr std::size_t kMostBars = 40'000;

// Collects bars while parsing: {"traceEvents": [{"ph": "X", ..., "args": {"phase": ...}}]}.
class BarGatherer {
 public:
  using Text = std::string;

  explicit BarGatherer(Trace& trace) : trace_(trace) {}

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(std::int64_t value) { return number(static_cast<double>(value)); }
  bool number_unsigned(std::uint64_t value) { return number(static_cast<double>(value)); }
  bool number_float(double value, const Text&) { return number(value); }
  bool string(Text& value) {
    if (is_field() && key_ == "ph") is_bar_ = value == "X";
    if (is_argument() && key_ == "phase") bar_.phase = value.substr(0, 40);
    return true;
  }
  bool binary(nlohmann::json::binary_t&) { return true; }
  bool key(Text& name) {
    key_ = name.substr(0, 40);
    if (depth_ == 1) in_events_ = name == "traceEvents";
    if (depth_ == kEvent) in_arguments_ = name == "args";
    return true;
  }
  bool start_object(std::size_t) {
    if (++depth_ != kEvent || !in_events_) return true;
    bar_ = TraceBar{};
    step_ = -1;
    is_bar_ = in_arguments_ = false;
    return true;
  }
  bool end_object() {
    if (depth_-- == kEvent && in_events_) keep();
    return true;
  }
  bool start_array(std::size_t) { return ++depth_ > 0; }
  bool end_array() {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t, const Text&, const nlohmann::detail::exception&) { return false; }

 private:
  static constexpr int kEvent = 3;  // nesting depth of an event's fields: the object, the list, the event

  [[nodiscard]] bool is_field() const { return in_events_ && depth_ == kEvent; }
  [[nodiscard]] bool is_argument() const { return in_events_ && in_arguments_ && depth_ == kEvent + 1; }

  bool number(double value) {
    if (is_field() && key_ == "ts") bar_.begin_us = value;
    if (is_field() && key_ == "dur") bar_.length_us = value;
    if (!(std::abs(value) < 1e9)) return true;  // not an id of ours
    if (is_field() && key_ == "pid") bar_.pid = static_cast<std::int64_t>(value);
    if (is_argument()) argument(value);
    return true;
  }

  void argument(double value) {
    if (key_ == "stage") bar_.stage = static_cast<int>(value);
    if (key_ == "replica") bar_.replica = static_cast<int>(value);
    if (key_ == "worker") bar_.worker = static_cast<int>(value);
    if (key_ == "micro_batch") bar_.micro_batch = static_cast<int>(value);
    if (key_ == "step") step_ = static_cast<std::int64_t>(value);
  }

  void keep() {
    const bool is_finite = std::isfinite(bar_.begin_us) && std::isfinite(bar_.length_us) && bar_.length_us >= 0;
    if (!is_bar_ || step_ < 0 || bar_.phase.empty() || !is_finite) return;
    if (!trace_.steps.contains(step_) && trace_.steps.size() >= kMostSteps) return;
    auto& bars = trace_.steps[step_];
    if (bars.size() < kMostBars) bars.push_back(bar_);
  }

  Trace& trace_;
  TraceBar bar_;
  std::int64_t step_ = -1;
  std::string key_;
  int depth_ = 0;
  bool in_events_ = false, in_arguments_ = false, is_bar_ = false;
};

}  // namespace

Trace read_trace(const fs::path& file, std::int64_t unpacked_limit) {
  Trace trace;
  const std::string name = printable(file.filename().string());
  storage::UnpackedFile unpacked(file, unpacked_limit);
  if (!unpacked.is_open()) {
    trace.problem = concat(name, " cannot be opened; check its permissions");
    return trace;
  }
  std::istream in(&unpacked);
  BarGatherer gatherer(trace);
  const bool is_whole = nlohmann::json::sax_parse(in, &gatherer);
  if (unpacked.is_cut()) {
    trace.problem = concat(name, " is longer than ", human_bytes(static_cast<std::uint64_t>(unpacked_limit)),
                           "; only its beginning is drawn");
  } else if (!is_whole || unpacked.is_damaged()) {
    trace.problem = concat(name, " is damaged or was cut; only its whole part is drawn");
  } else if (trace.steps.empty()) {
    trace.problem = concat(name, " holds no step of ours");
  }
  return trace;
}

}  // namespace sluice::report
