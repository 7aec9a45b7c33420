// load_cost: what it costs to prepare a sample, as measured of one thread. Not here: measuring
// (measure/measure_loading.h), what it makes of a step (tune/loading.h). Values.
#pragma once

namespace sluice {

struct LoadCost {
  double sample_s = 0;  // from the request to the tensor, waiting for the disk included
  double cpu_s = 0;     // of it, processor time
};

}  // namespace sluice
