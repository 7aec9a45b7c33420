// server_cost: what a parameter server costs its workers, as measured through its own protocol. Not here: measuring
// (measure/measure_server.h), what it makes of a step (tune/server_step.h), the file
// (profiler/layer_profile.h). Units: seconds, bytes of the weights, whatever part of them travels. Threads: values.
#pragma once

#include "core/layer_cost.h"
#include "core/link_cost.h"

namespace sluice {

struct ServerCost {
  LinkCost push;      // of gradients: from the end of a worker's last backward until the server has them
  LinkCost pull;      // of weights: from the end of the server's update until they are in the worker's stages
  AffineCost update;  // of one push, by the server's optimizer
  AffineCost merge;   // more, for each further push in an update
};

}  // namespace sluice
