// cluster_elastic: predicts an elastic run with freezing on a cluster, epoch by epoch. Unlike elastic.h, each shape has
// its own links (cluster_links.h) and cut. The shape may change only in an epoch that freezes other layers. As in
// elastic_plan(), a replica stays inside a node and leftover devices idle. Pure. Units: seconds, samples.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tune/cluster.h"
#include "tune/elastic.h"

namespace sluice::tune {

struct ElasticEpoch {
  int frozen_layers = 0;
  int devices = 0;  // per replica: PipeTransformer's pipeline length
  int replicas = 0;
  int chunks = 0;
  bool fits = true;
  double seconds = 0;
  double samples_per_s = 0;
  double speedup = 1;  // against a run that never freezes
};

// run.request: the first epoch's shape; each of its request.replicas / plan.replicas nodes holds plan.replicas
// replicas. frozen_layers: [epoch], fewer than all layers. rules.current is ignored: each epoch starts with the
// previous shape. With weak scaling more replicas take more samples per step; a new shape must recover its change cost
// over the samples of rules.steps steps. Errors: ConfigError.
[[nodiscard]] std::vector<ElasticEpoch> elastic_epochs(const ClusterRun& run, std::span<const int> frozen_layers,
                                                       const ElasticRules& rules);

struct ElasticRow {
  std::string name;
  std::vector<ElasticEpoch> epochs;
  double speedup = 1;  // over all epochs, which have equally many samples
};

// The rows of PipeTransformer's figure 9: "baseline" freezes nothing; "freeze only" keeps the shape; "elastic pipeline"
// shrinks it and leaves devices idle; "with AutoDP" uses those for more replicas. Set overheads.frozen_share = 0 for
// its feature cache. Only `change_s` and `steps` of the rules are used. Errors: ConfigError.
[[nodiscard]] std::vector<ElasticRow> elastic_table(const ClusterRun& run, std::span<const int> frozen_layers,
                                                    const ElasticRules& rules = {});

}  // namespace sluice::tune
