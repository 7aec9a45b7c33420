#include "train/setup/libtorch_settings.h"

#include <ATen/Context.h>

namespace sluice::train {

void apply_libtorch_settings(const config::Config& config) {
  at::Context& context = at::globalContext();
  if (config.train.deterministic) {
    context.setDeterministicAlgorithms(true, /*warn_only=*/true);
    context.setDeterministicFillUninitializedMemory(false);
  }
  context.setAllowTF32CuBLAS(config.device.tf32);
  context.setAllowTF32CuDNN(config.device.tf32);
}

}  // namespace sluice::train
