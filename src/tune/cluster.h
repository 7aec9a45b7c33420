// cluster: the steps of a cluster that nobody here has, from what layers cost on one device and what its links are said
// to be: samples/s and efficiency by the number of devices, and where the time goes.
// Each replica takes a predicted step (predict.h) with the borders and sums of its position in the cluster
// (cluster_links.h). All replicas are alike but for which borders leave a node: the slowest of them counts. Their noise
// makes each step wait for the slowest of all replicas (expected_maximum.h).
// Not here: loading. Pure. Units: seconds, samples, bytes.
#pragma once

#include <span>
#include <vector>

#include "core/layer_cost.h"
#include "core/plan.h"
#include "tune/cluster_links.h"
#include "tune/make_plan.h"
#include "tune/predict.h"

namespace sluice::tune {

inline constexpr int kMostDevices = 10'000'000;  // of a cluster

enum class Scaling {
  kWeak,    // a replica's samples stay: the global batch grows with the replicas
  kStrong,  // the global batch stays; so do micro-batches as long as a replica has one, and chunks become fewer
};

struct ClusterRun {
  // Its devices, schedule, chunks and samples of a replica, whose number of replicas is where scaling begins. Where the
  // cut is open it is made for these chunks, and all numbers of devices have it.
  PlanRequest request;
  std::vector<LayerCost> layers;  // of one device; all of the model
  StepOverheads overheads;        // its links are made here, from the cluster
  Cluster cluster;
  Scaling scaling = Scaling::kWeak;
};

struct ClusterStep {
  int devices = 0;  // of all replicas
  int replicas = 0;
  int nodes = 0;
  int chunks = 0;      // of a replica
  double samples = 0;  // of all replicas
  double seconds = 0;
  // They add up to the seconds, each the mean of a replica's devices.
  double compute = 0;
  double bubble = 0;      // if borders took no time
  double borders = 0;     // by which they make the pipeline longer
  double all_reduce = 0;  // that nothing hides
  double update = 0;
  double stragglers = 0;  // waiting for the slowest replica
  // Samples/s a device, as a share of those of one device that trains the whole model, with the same micro-batches.
  double efficiency = 0;
  double efficiency_to_smallest = 0;  // as a share of those of the smallest cluster that was asked for

  [[nodiscard]] double samples_per_s() const { return samples / seconds; }
  [[nodiscard]] double exposed_communication() const { return borders + all_reduce; }
};

struct ClusterPrediction {
  Plan plan;                       // of the request, with its cut
  bool fits = true;                // the request's memory limit, with the request's chunks
  double one_device_per_s = 0;     // samples/s of one device that trains the whole model
  std::vector<ClusterStep> steps;  // in the order of the devices asked for
};

// devices: of whole clusters, not empty. Errors: ConfigError.
[[nodiscard]] ClusterPrediction predict_cluster(const ClusterRun& run, std::span<const int> devices);

// ConfigError for what no cluster can have.
void check_cluster_run(const ClusterRun& run);

}  // namespace sluice::tune
