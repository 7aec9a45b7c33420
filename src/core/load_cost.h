// load_cost: measured cost of preparing one sample in one loader thread. Measured by measure/measure_loading.h, used by
// tune/loading.h. Units: seconds.
#pragma once

namespace sluice {

struct LoadCost {
  double sample_s = 0;  // from the request to the tensor, including disk waits
  double cpu_s = 0;
};

}  // namespace sluice
