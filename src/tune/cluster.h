// cluster: predicts steps of a cluster by its number of devices, from layer costs of one device and given link speeds.
// Each replica's step is predicted (predict.h) with the links of its position (cluster_links.h); the slowest counts.
// Replicas wait for the slowest (expected_maximum.h). Loading is ignored. Pure. Units: seconds, samples, bytes.
#pragma once

#include <span>
#include <vector>

#include "core/layer_cost.h"
#include "core/plan.h"
#include "tune/cluster_links.h"
#include "tune/make_plan.h"
#include "tune/predict.h"

namespace sluice::tune {

inline constexpr int kMostDevices = 10'000'000;

enum class Scaling {
  kWeak,  // samples per replica stay; the global batch grows with the replicas
  // The global batch stays. Micro-batches stay while a replica has at least one, so the chunks become fewer.
  kStrong,
};

struct ClusterRun {
  // A replica's devices, schedule, chunks and samples; its number of replicas is the reference for scaling. If the cut
  // is open, it is made once for these chunks and used for all numbers of devices.
  PlanRequest request;
  std::vector<LayerCost> layers;
  StepOverheads overheads;  // without links, which are derived from the cluster
  Cluster cluster;
  Scaling scaling = Scaling::kWeak;
};

struct ClusterStep {
  int devices = 0;
  int replicas = 0;
  int nodes = 0;
  int chunks = 0;
  double samples = 0;
  double seconds = 0;
  // Parts of `seconds`; each is the mean over a replica's devices.
  double compute = 0;
  double bubble = 0;   // without the time of borders
  double borders = 0;  // time that borders add to the pipeline
  double all_reduce = 0;
  double update = 0;
  double stragglers = 0;
  // Samples/s per device, relative to one device that trains the whole model with the same micro-batches.
  double efficiency = 0;
  double efficiency_to_smallest = 0;

  [[nodiscard]] double samples_per_s() const { return samples / seconds; }
  [[nodiscard]] double exposed_communication() const { return borders + all_reduce; }
};

struct ClusterPrediction {
  Plan plan;
  bool fits = true;             // within the memory limit with the request's chunks
  double one_device_per_s = 0;  // samples/s of one device that trains the whole model
  std::vector<ClusterStep> steps;
};

// devices: each a whole number of replicas; not empty. Errors: ConfigError.
[[nodiscard]] ClusterPrediction predict_cluster(const ClusterRun& run, std::span<const int> devices);

void check_cluster_run(const ClusterRun& run);

}  // namespace sluice::tune
