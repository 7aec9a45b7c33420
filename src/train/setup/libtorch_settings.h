// libtorch_settings: the configuration's process-wide LibTorch settings. Threads: one, before others compute.
#pragma once

#include "config/config.h"

namespace sluice::train {

// Sets train.deterministic and device.tf32 (for products and convolutions; LibTorch's default uses TF32 for
// convolutions only). Call it before a model exists.
void apply_libtorch_settings(const config::Config& config);

}  // namespace sluice::train
