// fingerprint_fields: the JSON names of a Fingerprint's fields. Internal to src/profiler.
#pragma once

#include <string>

#include "profiler/fingerprint.h"
#include "profiler/json_fields.h"

namespace sluice::profiler {

// Model keys share one JSON object with the other fields.
inline std::string name_of_model_key(const std::string& key) {
  if (key == "name") return "model";
  return key == "size" ? "model_size" : key;
}

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
  io.if_there("winograd", value.winograd);
  io.if_there("tf32", value.tf32);
  io("optimizer", value.optimizer);
  io("batch_norm", value.batch_norm);
  for_each_key(
      [&](const std::string& key, auto& member) {
        const bool is_of_later_version = key.starts_with("lora_") || key == "config" || key == "task";
        if (is_of_later_version) return io.if_there(key.c_str(), member);
        io(name_of_model_key(key).c_str(), member);
      },
      value.model);
  io("label_smoothing", value.label_smoothing);
  io("deterministic", value.deterministic);
}

}  // namespace sluice::profiler
