#include "report/prediction.h"

#include <cmath>

#include "core/concat.h"
#include "core/text.h"
#include "report/record_fields.h"

namespace sluice::report {
namespace {

using nlohmann::ordered_json;

std::string percent_off(double error) { return concat(error < 0 ? "" : "+", fixed(100 * error, 1), " %"); }

void add_memory(ordered_json& fields, const Prediction& prediction, const ordered_json& peaks) {
  std::optional<double> worst;
  std::string of_device;
  for (const auto& [device, bytes] : prediction.device_bytes) {
    const auto peak = number_at(peaks, device);
    if (!peak || *peak <= 0) continue;
    fields["measured_device_bytes"][device] = peaks.at(device);
    const double error = static_cast<double>(bytes) / *peak - 1;
    if (!worst || std::abs(error) > std::abs(*worst)) worst = error, of_device = device;
  }
  if (!worst) return;
  fields["memory_error"] = *worst;
  fields["memory_error_device"] = of_device;
}

}  // namespace

ordered_json prediction_fields(const std::optional<Prediction>& prediction, const MeasuredRun& measured) {
  ordered_json fields;
  if (prediction) {
    fields["step_ms"] = prediction->step_s * 1e3;
    fields["by"] = prediction->by;
    if (measured.step_ms) fields["error"] = prediction->step_s * 1e3 / *measured.step_ms - 1;
  }
  if (measured.by_stages_ms && measured.step_ms) {
    fields["by_stages_ms"] = *measured.by_stages_ms;
    fields["stages_error"] = *measured.by_stages_ms / *measured.step_ms - 1;
  }
  if (prediction && !prediction->device_bytes.empty()) {
    fields["device_bytes"] = prediction->device_bytes;
    add_memory(fields, *prediction, measured.device_bytes);
  }
  return fields;
}

std::string prediction_line(const ordered_json& fields) {
  const auto number = [&](const char* name) { return number_at(fields, name); };
  std::string text;
  double measured_ms = 0;
  const auto add = [&](const char* source, const char* predicted, const char* error) {
    if (!number(predicted) || !number(error)) return;
    measured_ms = *number(predicted) / (1 + *number(error));  // error = predicted / measured - 1
    text += concat(text.empty() ? "predicted " : ", ", source, ": ", fixed(*number(predicted), 1), " ms (",
                   percent_off(*number(error)), ")");
  };
  add(text_at(fields, "by") == kByLayers ? "from layer costs" : "from the profile", "step_ms", "error");
  add("from the measured stage times", "by_stages_ms", "stages_error");
  if (!text.empty()) text = concat("a step took ", fixed(measured_ms, 1), " ms; ", text);
  if (number("memory_error"))
    text += concat(text.empty() ? "" : "; ", "error of the predicted memory: ", percent_off(*number("memory_error")),
                   " on ", fields.at("memory_error_device").get<std::string>(), ", the largest of all devices");
  return text;
}

}  // namespace sluice::report
