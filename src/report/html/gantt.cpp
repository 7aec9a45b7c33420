#include "report/html/gantt.h"

#include <algorithm>
#include <limits>
#include <set>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/plan_schedule.h"
#include "pipeline/schedule/simulate.h"
#include "report/html/thinned.h"
#include "storage/run_dir.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostBoxes = 4000;  // per picture, so that a browser draws it at once
constexpr std::size_t kMostProcesses = 8;
constexpr std::int64_t kMostDevices = 64, kMostChunks = 1024;

struct RowBars {
  std::set<int> stages, replicas, workers;
  std::vector<const TraceBar*> bars;
};

// All-reduces over processes overlap a stage's own work, so they have a separate row.
using RowKey = std::pair<std::int64_t, bool>;

std::string row_name(const RowBars& row, bool is_sums) {
  const std::vector<int> stages(row.stages.begin(), row.stages.end());
  std::string name = row.workers.empty() ? "" : concat("worker ", *row.workers.begin());
  if (!row.replicas.empty()) name += concat(name.empty() ? "" : ", ", "replica ", *row.replicas.begin());
  if (!stages.empty()) name += concat(name.empty() ? "" : ", ", numbered("stage", stages));
  return concat(name, is_sums ? ", sums" : "");
}

// If there are too many boxes, only the longest are kept.
double least_length(const std::map<std::string, std::vector<TraceBar>>& processes) {
  std::vector<double> lengths;
  for (const auto& [name, bars] : processes) {
    for (const TraceBar& bar : bars) lengths.push_back(bar.length_us);
  }
  if (lengths.size() <= kMostBoxes) return 0;
  std::ranges::nth_element(lengths, lengths.begin() + kMostBoxes, std::greater());
  return std::nextafter(lengths[kMostBoxes], std::numeric_limits<double>::infinity());
}

std::string words_of(std::string phase) {
  std::ranges::replace(phase, '_', ' ');
  return phase;
}

Json boxes_of(std::vector<const TraceBar*> bars, double origin_us, double least_us) {
  // Enclosing boxes come first and are drawn below those inside.
  std::ranges::sort(bars, [](const TraceBar* one, const TraceBar* other) {
    return std::pair(one->begin_us, -one->length_us) < std::pair(other->begin_us, -other->length_us);
  });
  Json boxes = Json::array();
  for (const TraceBar* bar : bars) {
    if (bar->length_us < least_us) continue;
    const std::string of = bar->micro_batch >= 0 ? concat(" ", bar->micro_batch) : "";
    boxes.push_back({brief((bar->begin_us - origin_us) * 1e-3), brief(bar->length_us * 1e-3), bar->phase,
                     words_of(bar->phase) + of});
  }
  return boxes;
}

std::map<RowKey, RowBars> rows_of(const std::vector<TraceBar>& bars) {
  std::map<RowKey, RowBars> rows;
  for (const TraceBar& bar : bars) {
    RowBars& row = rows[{bar.pid, bar.phase == "all_reduce"}];
    if (bar.stage >= 0) row.stages.insert(bar.stage);
    if (bar.replica >= 0) row.replicas.insert(bar.replica);
    if (bar.worker >= 0) row.workers.insert(bar.worker);
    row.bars.push_back(&bar);
  }
  return rows;
}

std::string kind_of(pipeline::Op op) {
  switch (op) {
    case pipeline::Op::kForward: return "forward";
    case pipeline::Op::kBackward: return "backward";
    case pipeline::Op::kInputGradient: return "input_gradient";
    case pipeline::Op::kWeightGradient: return "weight_gradient";
    case pipeline::Op::kReduceGradient: return "";
  }
  return "";
}

Partition partition_in(const Json& line) {
  Partition partition;
  const auto list = line.find("partition");
  if (list == line.end() || !list->is_array()) return partition;
  for (const Json& layers : *list)
    partition.layers_per_stage.push_back(layers.is_number_unsigned() && layers < 100'000 ? layers.get<int>() : 1);
  return partition;
}

std::optional<Plan> plan_in(const Json& line) {
  Plan plan;
  const auto devices = count_at(line, "stages", kMostDevices), chunks = count_at(line, "chunks", kMostChunks);
  const auto name = text_at(line, "schedule");
  if (!devices || !chunks || !name || *name == Plan::kFromFile) return std::nullopt;
  plan.partition = partition_in(line);
  plan.virtual_stages = static_cast<int>(count_at(line, "virtual", kMostDevices).value_or(1));
  plan.chunks = static_cast<int>(*chunks);
  plan.schedule = *name;
  const bool is_whole = *devices > 0 && plan.virtual_stages > 0 && plan.stages() == *devices * plan.virtual_stages;
  return is_whole && *devices * *chunks > 1 ? std::optional(plan) : std::nullopt;
}

// Returns the times of the last plan's slots; those of the whole run if it has only one plan; otherwise nothing.
std::vector<SlotTimes> slots_of_last_plan(const RunLog& log) {
  const char* const name = log.summary.contains("breakdown_of_last_plan") ? "breakdown_of_last_plan" : "breakdown";
  if (log.plan_since > 0 && name == std::string_view("breakdown")) return {};
  return slot_times(log.summary.value(name, Json(nullptr)));
}

std::vector<pipeline::StepCost> device_costs(const RunLog& log, const Plan& plan) {
  const auto slots = slots_of_last_plan(log);
  if (slots.empty() && log.plan_since > 0) return {};
  std::vector<pipeline::StepCost> costs;
  for (int device = 0; device < plan.devices(); ++device) {
    double forward = 0, backward = 0, count = 0;
    for (const SlotTimes& slot : slots) {
      if (slot.device != device) continue;
      const auto steps = static_cast<double>(std::max<std::int64_t>(slot.steps, 1));
      forward += number_in(slot.ms, "forward_ms").value_or(0) * steps;
      backward += number_in(slot.ms, "backward_ms").value_or(0) * steps;
      count += steps;
    }
    if (count == 0) {
      forward = number_in(log.means, "forward_ms").value_or(0);
      backward = number_in(log.means, "backward_ms").value_or(0);
    }
    const double share = 1.0 / (std::max(count, 1.0) * plan.chunks);
    if (!(forward > 0) || !(backward > 0) || !(forward + backward < 1e12)) return {};
    costs.push_back({.forward = forward * share, .input = backward * share / 2, .weight = backward * share / 2});
  }
  return costs;
}

Json simulated_row(const std::vector<pipeline::Action>& actions, const std::vector<pipeline::TimeSpan>& spans) {
  Json boxes = Json::array();
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const std::string kind = kind_of(actions[i].op);
    if (kind.empty() || boxes.size() >= kMostBoxes) continue;
    const std::string of = concat(words_of(kind), ", stage ", index(actions[i].stage), ", micro-batch ");
    boxes.push_back(
        {brief(spans[i].start), brief(spans[i].end - spans[i].start), kind, concat(of, index(actions[i].micro_batch))});
  }
  return boxes;
}

// Returns the second step that all processes traced, because the first may still warm up; the first if it is the only
// one. If no step is common, returns the first step of any process.
std::optional<std::int64_t> common_step(const std::vector<std::pair<std::string, Trace>>& traces) {
  std::map<std::int64_t, std::size_t> uses;
  for (const auto& [name, trace] : traces) {
    for (const auto& [step, bars] : trace.steps) ++uses[step];
  }
  std::vector<std::int64_t> steps;
  for (const auto& [step, count] : uses) {
    if (count == traces.size()) steps.push_back(step);
  }
  if (steps.empty()) return uses.empty() ? std::nullopt : std::optional(uses.begin()->first);
  return steps[std::min<std::size_t>(1, steps.size() - 1)];
}

void add_to(std::string& note, const std::string& sentence) { note += concat(note.empty() ? "" : " ", sentence); }

Json read_measured(const RunLog& log, std::string& note, std::optional<std::int64_t>& step) {
  std::vector<std::pair<std::string, Trace>> traces;
  auto files = storage::RunDir::traces(log.dir);
  while (files.size() > kMostProcesses) files.erase(std::prev(files.end()));
  for (const auto& [rank, file] : files) {
    Trace trace = read_trace(file);
    if (!trace.problem.empty()) add_to(note, trace.problem + ".");
    if (!trace.steps.empty())
      traces.emplace_back(files.size() > 1 ? concat("rank ", rank, ", ") : "", std::move(trace));
  }
  step = common_step(traces);
  if (!step) return nullptr;
  // A single replica has no sums.
  const bool has_sums = count_at(log.plan, "replicas", kMostDevices).value_or(2) > 1 ||
                        count_at(log.plan, "processes", kMostDevices).value_or(2) > 1;
  std::map<std::string, std::vector<TraceBar>> processes;
  for (auto& [name, trace] : traces) {
    if (!trace.steps.contains(*step)) continue;
    std::vector<TraceBar>& bars = processes[name] = std::move(trace.steps[*step]);
    if (!has_sums) std::erase_if(bars, [](const TraceBar& bar) { return bar.phase == "all_reduce"; });
  }
  if (processes.size() < traces.size())
    add_to(note, concat("The traces share no step; ", traces.size() - processes.size(), " of them are omitted."));
  return measured_gantt(processes, *step);
}

}  // namespace

Json measured_gantt(const std::map<std::string, std::vector<TraceBar>>& processes, std::int64_t step) {
  double begin = std::numeric_limits<double>::infinity(), end = -begin;
  for (const auto& [name, bars] : processes) {
    for (const TraceBar& bar : bars) {
      begin = std::min(begin, bar.begin_us);
      end = std::max(end, bar.begin_us + bar.length_us);
    }
  }
  if (!(end > begin)) return nullptr;
  Json rows = Json::array();
  const double least = least_length(processes);
  for (const auto& [name, bars] : processes) {
    for (const auto& [key, row] : rows_of(bars))
      rows.push_back({{"name", name + row_name(row, key.second)}, {"boxes", boxes_of(row.bars, begin, least)}});
  }
  return {{"title", concat("Measured: step ", step)}, {"length_ms", brief((end - begin) * 1e-3)}, {"rows", rows}};
}

Json simulated_gantt(const RunLog& log) {
  const auto plan = plan_in(log.plan);
  if (!plan) return nullptr;
  const auto costs = device_costs(log, *plan);
  if (costs.empty()) return nullptr;
  try {
    const pipeline::Schedule schedule = pipeline::make_train_schedule(*plan, plan->chunks);
    pipeline::Costs all;
    all.stages = pipeline::share_costs(schedule, costs);
    const pipeline::Simulation simulation = pipeline::simulate(schedule, all);
    Json rows = Json::array();
    for (std::size_t device = 0; device < schedule.devices.size(); ++device)
      rows.push_back({{"name", concat("device ", device)},
                      {"boxes", simulated_row(schedule.devices[device], simulation.spans[device])}});
    return {{"title", concat("Simulated: ", plan->schedule, ", ", counted(plan->devices(), "device"), ", ",
                             counted(plan->chunks, "micro-batch"), ", bubble ",
                             fixed(100 * simulation.bubble_fraction, 1), " %")},
            {"length_ms", brief(simulation.makespan)},
            {"rows", rows}};
  } catch (const Error&) {
    return nullptr;  // a schedule from another version
  }
}

Json gantt_of(const RunLog& log) {
  std::string note;
  std::optional<std::int64_t> step;
  Json measured = read_measured(log, note, step);
  const bool is_of_old_plan = step && *step <= log.plan_since;
  Json simulated = is_of_old_plan ? Json(nullptr) : simulated_gantt(log);
  if (measured.is_null() && simulated.is_null() && note.empty()) return nullptr;
  if (is_of_old_plan)
    add_to(note, concat("The plan changed after this step (the last time after step ", log.plan_since,
                        "), so no simulated step is shown."));
  if (measured.is_null() && note.empty())
    note = "No step of this run was traced; record some with `sluice train CONFIG --trace 10..12`.";
  if (!simulated.is_null())
    add_to(note, concat("The simulation uses the devices' mean times ",
                        log.plan_since > 0 ? "of the last plan" : "of the run",
                        "; it has neither transfers nor work before and after the schedule."));
  return {{"measured", std::move(measured)}, {"simulated", std::move(simulated)}, {"note", note}};
}

}  // namespace sluice::report
