// fingerprint_fields: the names of a Fingerprint's fields in JSON; only src/profiler includes this.
#pragma once

#include "profiler/fingerprint.h"
#include "profiler/json_fields.h"

namespace sluice::profiler {

template <typename Io>
void fields(Io& io, Fingerprint& value) {
  io("cpu", value.cpu);
  io("cores", value.cores);
  io("threads_per_device", value.threads_per_device);
  io("instruction_set", value.instruction_set);
  io("memory_bytes", value.memory_bytes);
  io("gpus", value.gpus);
  io("device", value.device);
  io("sluice", value.sluice);
  io("libtorch", value.libtorch);
  io("precision", value.precision);
  io("optimizer", value.optimizer);
  io("batch_norm", value.batch_norm);
  io("model", value.model);
  io("model_size", value.model_size);
  io("stem", value.stem);
  io("classes", value.classes);
  io("channels", value.channels);
  io("image_size", value.image_size);
  io("patch_size", value.patch_size);
  io("vocabulary", value.vocabulary);
  io("context", value.context);
  io("dropout", value.dropout);
  io("label_smoothing", value.label_smoothing);
  io("deterministic", value.deterministic);
}

}  // namespace sluice::profiler
