// cluster_elastic: an elastic run with freezing on a cluster that nobody here has, epoch by epoch: what each epoch's
// pipeline shrinks to, how many replicas there are then, and what that wins. The counterpart of elastic.h, which takes
// one cost for the sums of all shapes; here each shape has its own links (cluster_links.h).
// As in a run, only an epoch that freezes other layers than the one before (of the first: than none) may have another
// shape. A shape is of whole devices of each node, as elastic_plan() makes it: a replica stays inside a node, and what
// does not make up a replica idles. The cut is made anew for each shape. Not here: how many layers freeze
// (freeze/policy.h). Pure. Units: seconds, samples.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tune/cluster.h"
#include "tune/elastic.h"

namespace sluice::tune {

struct ElasticEpoch {
  int frozen_layers = 0;
  int devices = 0;   // of a replica: PipeTransformer's pipeline length
  int replicas = 0;  // of all nodes
  int chunks = 0;
  bool fits = true;    // the memory limit; false: no shape does
  double seconds = 0;  // a step
  double samples_per_s = 0;
  double speedup = 1;  // against a run that never freezes
};

// run.request: of the first epoch's shape, with plan.replicas in each of request.replicas / plan.replicas nodes.
// frozen_layers: [epoch], of all layers; fewer than there are. Of the rules `current` is not read: each epoch begins
// with the shape of the one before. With weak scaling a step of more replicas takes more samples, and a shape has to
// win back its change in the samples of so many steps. Errors: ConfigError.
[[nodiscard]] std::vector<ElasticEpoch> elastic_epochs(const ClusterRun& run, std::span<const int> frozen_layers,
                                                       const ElasticRules& rules);

struct ElasticRow {
  std::string name;
  std::vector<ElasticEpoch> epochs;
  double speedup = 1;  // of all epochs together, which have equally many samples
};

// The rows of PipeTransformer's figure 9: "baseline" freezes nothing; "freeze only" keeps the shape; "elastic pipeline"
// shrinks and leaves devices idle; "with AutoDP" makes replicas of them. Its feature cache is overheads.frozen_share =
// 0. rules: `change_s` and `steps` count. Errors: ConfigError.
[[nodiscard]] std::vector<ElasticRow> elastic_table(const ClusterRun& run, std::span<const int> frozen_layers,
                                                    const ElasticRules& rules = {});

// Theirs: 2 nodes, each with 8 devices on PCIe 3.0 x16 (15.754 GB/s a direction), 5 GB/s between them. They tell no
// latencies.
[[nodiscard]] Cluster pipetransformer_cluster();

}  // namespace sluice::tune
