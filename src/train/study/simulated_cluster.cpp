#include "train/study/simulated_cluster.h"

#include <algorithm>
#include <limits>
#include <string>

#include "core/error.h"
#include "core/text.h"
#include "freeze/policy.h"
#include "freeze/schedule_text.h"
#include "models/freeze_points.h"
#include "train/plan/what_if.h"
#include "train/setup/setup.h"

namespace sluice::train {
namespace {

std::vector<int> cluster_sizes(int devices_of_replica, int most_devices) {
  const int most = most_devices / devices_of_replica;
  std::vector<int> devices;
  for (int replicas = 1; replicas < most; replicas *= 2) devices.push_back(replicas * devices_of_replica);
  devices.push_back(most * devices_of_replica);
  return devices;
}

// [epoch]: frozen layers.
std::vector<int> frozen_layers_of(const config::Config& config, const profiler::LayerProfile& profile) {
  const config::FreezeConfig& freeze = config.freeze;
  freeze::Policy policy{.rule = freeze::rule_of(freeze.policy), .alpha = freeze.alpha, .percentile = freeze.percentile};
  if (policy.rule == freeze::Rule::kNone) return {};
  if (!freeze::is_known_beforehand(policy))
    throw ConfigError("freeze.policy = \"", freeze.policy,
                      "\" decides by gradients, which a simulation does not have; use \"linear\" or \"schedule\"");
  std::vector<std::string> names;
  for (const profiler::MeasuredLayer& layer : profile.layers) names.push_back(layer.name);
  const std::vector<int> points =
      models::freeze_points(names, freeze.unit == "half" ? models::FreezeUnit::kHalfBlock : models::FreezeUnit::kBlock);
  const int units = static_cast<int>(points.size()) - 1;
  if (policy.rule == freeze::Rule::kSchedule) {
    policy.schedule = freeze::parse_schedule(freeze.schedule, "freeze.schedule");
    freeze::require_units(policy.schedule, units, "freeze.schedule");
  }
  std::vector<int> layers;
  int frozen = 0;
  for (std::int64_t epoch = 0; epoch < std::max(config.train.epochs, 1); ++epoch) {
    if (epoch > 0) frozen = freeze::decide(policy, {.epoch = epoch, .units = units, .frozen = frozen}).frozen;
    layers.push_back(points[frozen]);
  }
  return layers;
}

// In the first epoch, each node holds as many replicas as possible.
std::vector<tune::ElasticRow> elastic_rows(tune::ClusterRun run, const ClusterQuestion& question,
                                           const std::vector<int>& frozen) {
  if (frozen.empty()) return {};
  const int local = question.cluster.devices_per_node / run.request.devices;
  if (local < 1)
    throw ConfigError("an elastic replica stays inside a node, but pipeline.stages = ", run.request.devices,
                      " is more than the ", question.cluster.devices_per_node, " devices of a node; use fewer stages");
  const std::int64_t samples = run.request.plan.global_batch / run.request.replicas;
  run.request.plan.replicas = local;
  run.request.replicas = local * question.nodes;
  run.request.plan.global_batch = samples * run.request.replicas;
  run.overheads.frozen_share = 1;
  return tune::elastic_table(run, frozen);
}

}  // namespace

SimulatedCluster simulate_cluster(const config::Config& configured, const profiler::LayerProfile& profile,
                                  const ClusterQuestion& question) {
  config::Config config = configured;
  settle_worker(config);
  const tune::PlanRequest request = request_by_profile(config, profile, /*processes=*/1);
  tune::ClusterRun run{.request = request,
                       .layers = profile.costs(),
                       .overheads = overheads_by_profile(config, profile, request.uncut(), /*processes=*/1),
                       .cluster = question.cluster,
                       .scaling = question.scaling};
  run.overheads.contenders = 1;  // each device has its own memory and cores
  run.overheads.runnable = std::numeric_limits<double>::infinity();
  run.overheads.updaters = 1;  // each device has its own weights
  run.overheads.update = profile.update;
  run.overheads.server.reset();   // these replicas sum gradients
  run.overheads.loading.reset();  // the disks of the nodes are unknown
  run.overheads.deviation = 0;    // the cluster has its own noise
  const int devices = question.nodes * question.cluster.devices_per_node;
  if (devices < request.devices)
    throw ConfigError("pipeline.stages = ", request.devices, " needs as many devices, but ",
                      counted(question.nodes, "node"), " with ", question.cluster.devices_per_node, " have ", devices,
                      "; use more nodes or fewer stages");
  return {.scaling = tune::predict_cluster(run, cluster_sizes(request.devices, devices)),
          .elastic = elastic_rows(run, question, frozen_layers_of(config, profile))};
}

}  // namespace sluice::train
