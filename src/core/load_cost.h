// load_cost: measured cost of preparing one sample in one loader thread. Units: seconds.
#pragma once

namespace sluice {

struct LoadCost {
  double sample_s = 0;  // from the request to the tensor, including disk waits
  double cpu_s = 0;
};

}  // namespace sluice
