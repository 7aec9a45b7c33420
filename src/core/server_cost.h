// server_cost: measured cost of a parameter server for its workers, through its own protocol. Units: seconds; bytes of
// the full weights, even if only a part is sent.
#pragma once

#include "core/layer_cost.h"
#include "core/link_cost.h"

namespace sluice {

struct ServerCost {
  LinkCost push;      // gradients: from the end of a worker's last backward until the server has them
  LinkCost pull;      // weights: from the end of the server's update until the worker's stages have them
  AffineCost update;  // time of the server's optimizer for one push
  AffineCost merge;   // additional time for each further push in an update
};

}  // namespace sluice
