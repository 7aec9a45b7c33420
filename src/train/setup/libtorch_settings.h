// libtorch_settings: what the configuration says of LibTorch's own settings, which hold for the whole process. Not
// here: threads and memory (device/cpu_threads.h, device/memory.h). Threads: one, before others compute. Errors: none.
#pragma once

#include "config/config.h"

namespace sluice::train {

// Deterministic kernels (train.deterministic), and whether a GPU computes float32 products and convolutions in TF32
// (device.tf32): LibTorch itself would for convolutions alone. Call it before there is a model.
void apply_libtorch_settings(const config::Config& config);

}  // namespace sluice::train
