// fingerprint_fields: the JSON names of a Fingerprint's fields. Internal to src/profiler.
#pragma once

#include <optional>
#include <string>

#include "profiler/fingerprint.h"
#include "profiler/json_fields.h"

namespace sluice::profiler {

// Model keys share one JSON object with the other fields.
inline std::string name_of_model_key(const std::string& key) {
  if (key == "name") return "model";
  return key == "size" ? "model_size" : key;
}

// Only text models have them, and earlier files do not.
template <typename Io>
void text_field(Io& io, const char* name, std::string& member) {
  std::optional<std::string> text = member.empty() ? std::nullopt : std::optional(member);
  io.if_there(name, text);
  member = text.value_or("");
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
  const auto is_of_text = [](const std::string& key) { return key == "config" || key == "task"; };
  for_each_key(
      [&](const std::string& key, auto& member) {
        if (!is_of_text(key)) io(name_of_model_key(key).c_str(), member);
      },
      value.model);
  text_field(io, "task", value.model.task);
  text_field(io, "config", value.model.config);
  io("label_smoothing", value.label_smoothing);
  io("deterministic", value.deterministic);
}

}  // namespace sluice::profiler
