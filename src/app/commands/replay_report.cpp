#include "app/commands/replay_report.h"

#include <array>
#include <cmath>
#include <utility>

#include "core/concat.h"
#include "core/text.h"
#include "core/text_table.h"
#include "profiler/breakdown.h"

namespace sluice::app {
namespace {

using nlohmann::ordered_json;
using profiler::SlotBreakdown;

// The parts of a device's step, with JSON key and heading. They add up to the step.
struct PartOfStep {
  const char* key;
  const char* heading;
  Nanoseconds (*of)(const SlotBreakdown&);
};
constexpr std::array<PartOfStep, 7> kPartsOfStep{{
    {"compute_ms", "compute", [](const SlotBreakdown& slot) { return slot.forward() + slot.backward(); }},
    {"waiting_ms", "waiting", [](const SlotBreakdown& slot) { return slot.bubble(); }},
    {"allreduce_exposed_ms", "all-reduce", [](const SlotBreakdown& slot) { return slot.all_reduce_exposed(); }},
    {"optimizer_ms", "optimizer", [](const SlotBreakdown& slot) { return slot.optimizer(); }},
    {"transfer_ms", "transfer", [](const SlotBreakdown& slot) { return slot.transfer(); }},
    {"load_ms", "load", [](const SlotBreakdown& slot) { return slot.load(); }},
    {"other_ms", "other", [](const SlotBreakdown& slot) { return slot[profiler::Part::kOther]; }},
}};

ordered_json json_of_parts(const SlotBreakdown& slot) {
  ordered_json parts;
  for (const PartOfStep& part : kPartsOfStep) parts[part.key] = to_ms(part.of(slot));
  return parts;
}

std::string what_of(const tune::WorkLabel& label) {
  return std::string(label.kind ? tune::word(*label.kind) : "between");
}

double share_of(double time, Nanoseconds step) { return step > 0 ? time / static_cast<double>(step) : 0; }

// Calls visit(rank, slot, device name, recorded step, replayed step).
template <typename Visit>
void for_each_slot(const ReplayFindings& findings, Visit visit) {
  for (std::size_t rank = 0; rank < findings.recorded.size(); ++rank) {
    const tune::RecordedProcess& process = findings.recorded[rank];
    const profiler::StepBreakdown before = profiler::break_down(process.spans);
    const profiler::StepBreakdown after = profiler::break_down(findings.edited.processes[rank]);
    for (std::size_t slot = 0; slot < before.slots.size(); ++slot)
      visit(rank, process.devices[slot], before.slots[slot], after.slots[slot]);
  }
}

std::string devices_text(const ReplayFindings& findings) {
  TextRow head{"device", "", "step"};
  for (const PartOfStep& part : kPartsOfStep) head.emplace_back(part.heading);
  std::vector<TextRow> rows{head};
  const auto add = [&](const std::string& name, const char* which, const SlotBreakdown& slot) {
    TextRow row{name, which, ""};
    Nanoseconds step = 0;
    for (const PartOfStep& part : kPartsOfStep) {
      row.push_back(fixed(to_ms(part.of(slot)), 2));
      step += part.of(slot);
    }
    row[2] = fixed(to_ms(step), 2);
    rows.push_back(std::move(row));
  };
  for_each_slot(findings, [&](std::size_t rank, const std::string& device, const SlotBreakdown& before,
                              const SlotBreakdown& after) {
    add(concat("rank ", rank, " replica ", index(before.replica), ": ", device), "recorded", before);
    if (!findings.edits.empty()) add("", "replayed", after);
  });
  return text_table(rows, std::array{Align::kLeft, Align::kLeft, Align::kRight});
}

std::string path_text(const ReplayFindings& findings) {
  std::vector<TextRow> rows{{"what", "rank", "stage", "ms", "share"}};
  const auto position = [](int number) { return number < 0 ? std::string() : std::to_string(number); };
  constexpr double kTold = 0.0005;  // shares that round to 0.0 % are omitted
  for (const auto& [label, time] : findings.edited.path) {
    const double share = share_of(time, findings.edited.step);
    if (std::abs(share) < kTold) continue;
    rows.push_back({what_of(label), position(label.rank), position(label.stage), fixed(time * 1e-6, 2),
                    concat(fixed(100 * share, 1), " %")});
  }
  return text_table(rows, std::array{Align::kLeft, Align::kRight});
}

}  // namespace

ordered_json json_of_replay(const ReplayFindings& findings) {
  const StepSpans& first = findings.recorded.front().spans;
  ordered_json slots = ordered_json::array(), path = ordered_json::array();
  for_each_slot(findings, [&](std::size_t rank, const std::string& device, const SlotBreakdown& before,
                              const SlotBreakdown& after) {
    slots.push_back({{"rank", rank},
                     {"replica", index(before.replica)},
                     {"device", device},
                     {"recorded", json_of_parts(before)},
                     {"replayed", json_of_parts(after)}});
  });
  for (const auto& [label, time] : findings.edited.path) {
    path.push_back({{"what", what_of(label)},
                    {"rank", label.rank},
                    {"stage", label.stage},
                    {"ms", time * 1e-6},
                    {"share", share_of(time, findings.edited.step)}});
  }
  return {{"step", first.step},
          {"edits", findings.edits},
          {"recorded_ms", to_ms(first.end - first.begin)},
          {"unedited_ms", to_ms(findings.unedited.step)},
          {"replayed_ms", to_ms(findings.edited.step)},
          {"waited_ms", to_ms(findings.unedited.waited)},
          {"waited_after_sending_ms", to_ms(findings.unedited.waited_after_sending)},
          {"places", slots},
          {"path", path}};
}

std::string text_of_replay(const ReplayFindings& findings) {
  const StepSpans& first = findings.recorded.front().spans;
  const auto ms = [](Nanoseconds time) { return concat(fixed(to_ms(time), 2), " ms"); };
  std::string text = concat("step ", first.step, ": recorded ", ms(first.end - first.begin),
                            ", replayed without edits ", ms(findings.unedited.step));
  if (!findings.edits.empty()) {
    const double change = share_of(static_cast<double>(findings.edited.step), findings.unedited.step) - 1;
    text += concat("; with ", join(findings.edits, " "), " ", ms(findings.edited.step), " (", change < 0 ? "" : "+",
                   fixed(100 * change, 1), " %)");
  }
  text += concat("\nof ", ms(findings.unedited.waited), " that stages waited for each other, ",
                 ms(findings.unedited.waited_after_sending), " passed after the awaited tensor was sent\n\n");
  return concat(text, "ms by device:\n", devices_text(findings), "\n\ncritical path of the ",
                findings.edits.empty() ? "recorded" : "replayed", " step:\n", path_text(findings));
}

}  // namespace sluice::app
