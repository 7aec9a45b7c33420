#include "report/time_table.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/concat.h"
#include "core/text.h"

namespace sluice::report {
namespace {

using Number = std::optional<double>;

Number without(Number whole, Number part) { return whole ? Number(*whole - part.value_or(0)) : whole; }

// idle_parts: separate columns for parts of the idle time, in addition to the bubble.
TextRow row_of(const std::string& name, const Numbers& ms, std::span<const char* const> idle_parts = {}) {
  const auto number = [&](const char* field) { return number_in(ms, field); };
  const Number skew = number("skew_ms"), bubble = bubble_ms(ms), step = number("step_ms");
  TextRow row{name};
  for (const Number& time : {number("load_ms"), number("forward_ms"), number("backward_ms"), number("transfer_ms"),
                             without(number("allreduce_exposed_ms"), skew), skew, number("optimizer_ms"), bubble}) {
    row.push_back(cell(time, 2));
  }
  Number other = without(number("idle_ms"), bubble);
  for (const char* part : idle_parts) {
    row.push_back(cell(number(part), 2));
    other = without(other, number(part));
  }
  row.push_back(cell(other, 2));
  row.push_back(cell(step, 2));
  Number compute;
  for (const char* field : {"forward_ms", "backward_ms", "optimizer_ms"}) {
    if (const Number time = number(field)) compute = compute.value_or(0) + *time;
  }
  row.push_back(compute && step && *step > 0 ? concat(fixed(100 * *compute / *step, 1), " %") : "-");
  return row;
}

double weight_of(const SlotTimes& slot) { return static_cast<double>(std::max<std::int64_t>(slot.steps, 1)); }

Numbers mean_of(std::span<const SlotTimes> slots) {
  double all = 0;
  for (const SlotTimes& slot : slots) all += weight_of(slot);
  Numbers mean;
  for (const SlotTimes& slot : slots) {
    for (const auto& [name, ms] : slot.ms) mean[name] += ms * weight_of(slot) / all;
  }
  return mean;
}

std::string name_of(const SlotTimes& slot, std::int64_t steps) {
  const bool ran_in_part = slot.steps > 0 && slot.steps < steps;
  return concat("replica ", slot.replica, " stage ", slot.device,
                ran_in_part ? concat(" (", counted(slot.steps, "step"), ")") : "");
}

}  // namespace

std::string cell(std::optional<double> value, int decimals) { return value ? fixed(*value, decimals) : "-"; }

std::optional<double> bubble_ms(const Numbers& ms) {
  std::optional<double> bubble;
  for (const char* field : {"bubble_fill_ms", "bubble_steady_ms", "bubble_drain_ms"}) {
    if (const auto part = number_in(ms, field)) bubble = bubble.value_or(0) + *part;
  }
  return bubble;
}

std::string time_table(std::span<const SlotTimes> slots, const Numbers& means, std::int64_t steps,
                       std::int64_t processes, std::string_view which) {
  std::vector<TextRow> rows{{"", "load", "forward", "backward", "transfer", "allreduce", "skew", "optimizer", "bubble",
                             "other", "step", "busy"}};
  for (const SlotTimes& slot : slots) rows.push_back(row_of(name_of(slot, steps), slot.ms));
  if (slots.size() > 1) rows.push_back(row_of("mean", mean_of(slots)));
  if (slots.empty()) rows.push_back(row_of("all stages", means));
  return concat("where the time went, mean ",
                which.empty() ? concat(steps == 1 ? "of " : "of all ", counted(steps, "step")) : std::string(which),
                processes > 1 ? concat(", of rank 0 of ", counted(processes, "process")) : "",
                " (ms; allreduce: the part that computing does not hide; skew: waiting for the slowest replica):\n",
                text_table(rows, std::array{Align::kLeft, Align::kRight}));
}

std::string worker_time_table(std::span<const std::pair<std::string, Numbers>> workers) {
  std::vector<TextRow> rows{{"", "load", "forward", "backward", "transfer", "allreduce", "skew", "optimizer", "bubble",
                             "wait", "stall", "other", "step", "busy"}};
  for (const auto& [name, ms] : workers) rows.push_back(row_of(name, ms, std::array{"wait_ms", "sleep_ms"}));
  return concat(
      "where the workers' time went, from their records, mean of a push and over their stages (ms; wait: "
      "for samples and weights; stall: ps.induce):\n",
      text_table(rows, std::array{Align::kLeft, Align::kRight}));
}

}  // namespace sluice::report
