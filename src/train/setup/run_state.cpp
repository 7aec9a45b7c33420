#include "train/setup/run_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <ATen/Version.h>
#include <torch/version.h>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "storage/checkpoint_store.h"
#include "train/setup/noise_watch.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

constexpr int kStateFormat = 2;

bool has_checkpoint_records(const fs::path& metrics_file) {
  return report::last_event(metrics_file, "checkpoint") || report::last_event(metrics_file, "resume");
}

}  // namespace

bool is_checkpoint(const fs::path& dir) {
  std::error_code ignored;
  return fs::exists(dir / "state.json", ignored) || (storage::step_of(dir) && fs::is_directory(dir, ignored));
}

std::optional<fs::path> find_checkpoint(const fs::path& dir) {
  if (is_checkpoint(dir)) return dir;
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored)) return std::nullopt;
  const storage::CheckpointScan scan = storage::scan_checkpoints(dir / "checkpoints");
  if (scan.newest) return scan.newest;
  const char* const advice =
      "; nothing was changed. Restore a checkpoint from a copy, or start a new run in another --run-dir";
  if (!scan.damaged.empty())
    throw CheckpointError("every checkpoint in ", (dir / "checkpoints").string(), " is damaged", advice);
  if (has_checkpoint_records(dir / "metrics.jsonl"))
    throw CheckpointError("the checkpoints of the run in ", dir.string(), " are missing", advice);
  return std::nullopt;
}

nlohmann::ordered_json plan_json(const Plan& plan) {
  nlohmann::ordered_json json{
      {"stages", plan.devices()},   {"virtual", plan.virtual_stages}, {"partition", plan.partition.layers_per_stage},
      {"replicas", plan.replicas},  {"chunks", plan.chunks},          {"global_batch", plan.global_batch},
      {"schedule", plan.schedule},  {"order", plan.schedule_text},    {"frozen_layers", plan.frozen_layers},
      {"recompute", plan.recompute}};
  if (!plan.shares.empty()) json["shares"] = plan.shares;
  return json;
}

Plan plan_from(const nlohmann::json& json) {
  return {.partition = {json.at("partition").get<std::vector<int>>()},
          .replicas = json.at("replicas"),
          .chunks = json.at("chunks"),
          .global_batch = json.at("global_batch"),
          .schedule = json.at("schedule"),
          // Checkpoints of earlier versions lack this field and the next ones.
          .schedule_text = json.value("order", std::string{}),
          .virtual_stages = json.value("virtual", 1),
          .frozen_layers = json.value("frozen_layers", 0),
          .recompute = json.value("recompute", std::vector<bool>{}),
          .shares = json.value("shares", std::vector<int>{})};
}

namespace {

nlohmann::json json_of(const FreezeRecord& record) {
  nlohmann::json terms = nlohmann::json::array();
  for (const freeze::Term& term : record.terms) terms.push_back({term.name, term.value});  // null if not finite
  return {{"terms", std::move(terms)},
          {"epoch", record.epoch},
          {"units", record.units},
          {"units_before", record.units_before},
          {"of_units", record.of_units},
          {"predicted_before_s", record.predicted_before_s},
          {"predicted_s", record.predicted_s},
          {"staying_s", record.staying_s}};
}

std::optional<FreezeRecord> freeze_record_from(const nlohmann::json& change) {
  if (!change.contains("freeze")) return std::nullopt;
  const nlohmann::json& json = change.at("freeze");
  std::vector<freeze::Term> terms;
  for (const nlohmann::json& term : json.at("terms")) {
    const bool is_finite = term.at(1).is_number();
    terms.push_back({term.at(0), is_finite ? term.at(1).get<double>() : std::numeric_limits<double>::quiet_NaN()});
  }
  return FreezeRecord{.epoch = json.at("epoch"),
                      .units = json.at("units"),
                      .units_before = json.at("units_before"),
                      .of_units = json.at("of_units"),
                      .predicted_before_s = json.at("predicted_before_s"),
                      .predicted_s = json.at("predicted_s"),
                      .staying_s = json.at("staying_s"),
                      .terms = std::move(terms)};
}

}  // namespace

std::string arithmetic_of(const std::vector<device::Device>& devices) {
  std::set<std::string> names;
  for (const device::DeviceDescription& known : device::list_devices()) {
    const bool is_used = std::ranges::any_of(devices, [&](const device::Device& own) {
      return own == known.device || (own.kind == device::DeviceKind::kCpu && known.device.kind == own.kind);
    });
    if (is_used) names.insert(known.model);
  }
  return concat(join(std::vector<std::string>(names.begin(), names.end()), " and "), " with ", at::get_cpu_capability(),
                ", LibTorch ", TORCH_VERSION);
}

nlohmann::json RunState::to_json() const {
  nlohmann::json json{{"state_format", kStateFormat},
                      {"step", progress.steps_done},
                      {"position", {{"epoch", progress.position.epoch}, {"batch", progress.position.batch}}},
                      {"evaluation_due", progress.evaluation_due},
                      {"evaluations", progress.evaluations.to_json()},
                      {"optimizer_steps", optimizer_steps},
                      {"plan", nlohmann::json(plan_json(plan))},
                      {"metrics", {{"bytes", metrics.bytes}, {"time_s", metrics.time_s}}},
                      {"config", config_toml}};
  for (const PlanChange& change : changes) {
    json["changes"].push_back(
        {{"after", change.after}, {"plan", nlohmann::json(plan_json(change.plan))}, {"refused", change.is_refused}});
    if (change.freeze) json["changes"].back()["freeze"] = json_of(*change.freeze);
  }
  for (const auto& [parameter, count] : updates) {
    if (count != optimizer_steps) json["optimizer_updates"][parameter] = count;  // it was frozen in some steps
  }
  const bool are_finite = std::ranges::all_of(norms, [](double norm) { return std::isfinite(norm); });
  if (!norms.empty() && are_finite) json["norms"] = norms;
  if (processes > 0) json["processes"] = processes;
  if (!arithmetic.empty()) json["arithmetic"] = arithmetic;
  if (!server.is_null()) json["server"] = server;
  if (progress.noise.estimates > 0) json["noise_scale"] = noise_to_json(progress.noise);
  if (data) json["data"] = data->to_json();
  return json;
}

RunState RunState::from_json(const nlohmann::json& json, const std::string& source) {
  try {
    if (json.at("state_format").get<int>() != kStateFormat) {
      throw CheckpointError(source, ": state format ", json.at("state_format").dump(), " is not ", kStateFormat,
                            "; resume with the version of Sluice that wrote it");
    }
    RunState state;
    state.progress = {json.at("step"),
                      {json.at("position").at("epoch"), json.at("position").at("batch")},
                      json.at("evaluation_due"),
                      {},
                      {}};
    if (json.contains("noise_scale")) state.progress.noise = noise_from_json(json.at("noise_scale"));
    if (json.contains("evaluations")) state.progress.evaluations = EvalHistory::from_json(json.at("evaluations"));
    state.optimizer_steps = json.at("optimizer_steps");
    state.updates = json.value("optimizer_updates", engine::UpdateCounts{});
    state.plan = plan_from(json.at("plan"));
    for (const auto& change : json.value("changes", nlohmann::json::array()))
      state.changes.push_back(
          {change.at("after"), plan_from(change.at("plan")), change.at("refused"), freeze_record_from(change)});
    state.processes = json.value("processes", 0);
    state.arithmetic = json.value("arithmetic", "");
    state.server = json.value("server", nlohmann::json());
    state.norms = json.value("norms", std::vector<double>{});
    state.metrics = {json.at("metrics").at("bytes"), json.at("metrics").at("time_s")};
    state.config_toml = json.at("config");
    if (json.contains("data")) state.data = DataIdentity::from_json(json.at("data"));
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(
        concat(source, ": state.json is not a valid training state (", error.what(), "); use another checkpoint"));
  }
}

}  // namespace sluice::train
