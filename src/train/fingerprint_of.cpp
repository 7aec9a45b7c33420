#include "train/fingerprint_of.h"

#include <torch/version.h>

#include "device/cpu_threads.h"
#include "nn/kernels/kernels.h"

namespace sluice::train {

profiler::Fingerprint fingerprint_of(const Setup& setup, const std::string& version) {
  const config::Config& config = setup.config;
  profiler::Fingerprint fingerprint{.cores = device::available_cores(),
                                    .threads_per_device = setup.cpu_threads,
                                    .instruction_set = nn::kernels::best().instruction_set,
                                    .device = device::to_string(setup.devices.front()),
                                    .sluice = version,
                                    .libtorch = TORCH_VERSION,
                                    .precision = config.train.precision,
                                    .optimizer = config.train.optimizer,
                                    .batch_norm = config.pipeline.batch_norm,
                                    .model = setup.model.name,
                                    .model_size = setup.model.size,
                                    .stem = setup.model.stem,
                                    .classes = setup.model.classes,
                                    .channels = setup.model.channels,
                                    .image_size = setup.model.image_size,
                                    .patch_size = setup.model.patch_size,
                                    .vocabulary = setup.model.vocabulary,
                                    .context = setup.model.context,
                                    .dropout = setup.model.dropout,
                                    .label_smoothing = config.train.label_smoothing,
                                    .deterministic = config.train.deterministic};
  for (const device::DeviceDescription& device : device::list_devices()) {
    if (device.device.kind == device::DeviceKind::kCpu) {
      fingerprint.cpu = device.model;
      fingerprint.memory_bytes = device.memory_bytes;
    } else {
      fingerprint.gpus.push_back(device.model);
    }
  }
  return fingerprint;
}

}  // namespace sluice::train
