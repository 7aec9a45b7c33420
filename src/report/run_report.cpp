#include "report/run_report.h"

#include <cmath>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "report/call_table.h"
#include "report/rank_spread.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }

Json or_name(std::optional<double> value) {
  return value && !std::isfinite(*value) ? Json(fixed(*value, 0)) : or_null(value);
}

Json value_at(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? Json(nullptr) : *found;
}

constexpr std::int64_t kMostOfOneKind = 1'000'000;  // the product of three such numbers fits into 64 bits

void add_plan(Json& report, const RunReport& run) {
  const Json& plan = run.log.plan;
  for (const char* name : {"model", "data", "parameters", "processes", "stages"}) report[name] = value_at(plan, name);
  // The plan counts local replicas; the report counts those of all processes, like step lines.
  const auto stages = count_at(plan, "stages", kMostOfOneKind), local = count_at(plan, "replicas", kMostOfOneKind);
  const std::int64_t processes = count_at(plan, "processes", kMostOfOneKind).value_or(1);
  const bool is_known = stages && local;
  report["replicas"] = is_known ? Json(*local * processes) : Json(nullptr);
  report["devices"] = is_known ? Json(*local * processes * *stages) : Json(nullptr);
  for (const char* name : {"chunks", "schedule", "global_batch", "partition"}) report[name] = value_at(plan, name);
  report["planned_steps"] = value_at(plan, "steps");
  if (!run.config) return;
  const config::Config& config = *run.config;
  report["config"] = {{"optimizer", config.train.optimizer}, {"lr", config.train.lr},
                      {"precision", config.train.precision}, {"seed", config.train.seed},
                      {"data_workers", config.data.workers}, {"profile_level", config.profile.level}};
  if (report["model"].is_null()) report["model"] = config.model.name;
  if (report["data"].is_null()) report["data"] = config.data.name;
}

void add_measurements(Json& report, const RunLog& log) {
  const auto mean = [&](const char* name) { return or_null(number_in(log.means, name)); };
  for (const char* name : {"samples_per_s", "step_ms"}) report[name] = mean(name);
  const auto& busy = log.device_busy;
  report["device_busy_mean"] = or_null(log.device_busy_mean);
  report["mfu"] = or_null(number_in(log.means, "mfu"));
  report["flops_per_s"] = or_null(number_in(log.means, "flops_per_s"));
  report["means"] = log.means;
  report["device_busy"] = busy.empty() ? Json(nullptr) : Json(busy);
  report["breakdown"] = value_at(log.summary, "breakdown");
  report["breakdown_steps"] = log.summary.empty() ? Json(nullptr) : Json(log.steps_since_resume);
  report["incomplete_steps"] = log.incomplete_steps;
  for (const char* name : {"evaluation_s", "checkpoints_s", "predicted"}) report[name] = value_at(log.summary, name);
  report["peak_memory_bytes"] = value_at(log.summary, "peak_memory_bytes");
  report["advice"] = value_at(log.summary, "advice");
  report["advice_steps"] = value_at(log.summary, "advice_steps");
  if (log.summary.contains("noise")) report["noise"] = log.summary.at("noise");
  report["rank_spread"] = rank_spread(log.ranks);
  report["kernels"] = kernel_table(log.kernels);
  report["operators"] = run_operators(log.operators);
}

void add_evaluations(Json& report, const RunLog& log) {
  Json list = nullptr;
  if (!log.evaluations.empty())
    list = {{"first", log.evaluations[0]}, {"best", log.evaluations[1]}, {"last", log.evaluations[2]}};
  for (const char* name : {"loss", "top1", kPerplexity})
    report[name] = log.evaluations.empty() ? Json(nullptr) : value_at(log.evaluations[2], name);
  report["scores"] = Json::object();
  if (!log.evaluations.empty()) {
    for (const std::string& name : score_names(log.evaluations[2])) report["scores"][name] = log.evaluations[2][name];
  }
  report["evaluations"] = std::move(list);
}

void add_server(Json& report, const RunReport& run) {
  Json server = run.log.server;
  for (const char* of_line : {"event", "time_s"}) server.erase(of_line);
  report["ps"] = run.log.server.empty() ? Json(nullptr) : std::move(server);
  report["workers"] = run.log.workers.empty() ? Json(nullptr) : workers_json(run.log.workers, run.own_records);
}

}  // namespace

std::vector<std::filesystem::path> add_worker_files(std::span<RunReport> runs, std::span<const WorkerFiles> files) {
  std::vector<std::filesystem::path> of_nobody;
  for (const WorkerFiles& of_dir : files) {
    bool is_used = false;
    for (RunReport& run : runs) {
      if (run.log.dir != of_dir.dir && own_records_of(run.log.workers, {&of_dir, 1}).empty()) continue;
      is_used = true;
      run.worker_damage.unreadable_lines += of_dir.damage.unreadable_lines;
      run.worker_damage.is_torn |= of_dir.damage.is_torn;
      run.worker_problems.insert(run.worker_problems.end(), of_dir.problems.begin(), of_dir.problems.end());
    }
    if (!is_used) of_nobody.push_back(of_dir.dir);
  }
  for (RunReport& run : runs) run.own_records = own_records_of(run.log.workers, files);
  return of_nobody;
}

RunReport read_report(const std::filesystem::path& run_dir, const TakeRecord& also) {
  RunReport report{.log = read_run_log(run_dir, also), .config = std::nullopt, .config_problem = {}};
  const std::filesystem::path file = run_dir / "config.toml";
  std::error_code ignored;  // load() reports problems with an existing file
  const std::filesystem::file_type type = std::filesystem::status(file, ignored).type();
  if (type == std::filesystem::file_type::not_found) {
    report.config_problem = "config.toml is missing";
    return report;
  }
  if (type != std::filesystem::file_type::regular) {  // reading a pipe could block
    report.config_problem = "config.toml is skipped: it is not a file";
    return report;
  }
  try {
    report.config = config::load(file);
  } catch (const Error& error) {
    report.config_problem = concat("config.toml is skipped: ", error.what());
  }
  return report;
}

Json RunReport::json() const {
  Json report{{"run_dir", log.dir.string()}, {"outcome", log.outcome()}};
  add_plan(report, *this);
  report["steps"] = log.last_step;
  report["recorded_steps"] = log.steps;
  report["resumed_at"] = log.resumed_at ? Json(*log.resumed_at) : Json(nullptr);
  report["wall_s"] = log.wall_s();
  const Json goodput = log.goodput.json();
  for (const char* name : {"goodput", "lost_s"}) report[name] = value_at(goodput, name);
  add_measurements(report, log);
  add_evaluations(report, log);
  add_server(report, *this);
  report["train_loss"] = or_name(log.last_loss);
  report["counts"] = log.counts;
  report["checkpoints"] = log.checkpoints.size();
  report["fault"] = value_at(log.fault, "what");
  report["unreadable_lines"] = log.unreadable_lines;
  report["torn_last_line"] = log.is_torn;
  return report;
}

Json json_of(std::span<const RunReport> runs) {
  Json list = Json::array();
  for (const RunReport& run : runs) {
    Json& one = list.emplace_back(run.json());
    const auto own = number_at(one, "samples_per_s"), first = number_at(list[0], "samples_per_s");
    one["speedup"] = or_null(own && first && *first > 0 ? std::optional(*own / *first) : std::nullopt);
  }
  return {{"runs", std::move(list)}};
}

}  // namespace sluice::report
