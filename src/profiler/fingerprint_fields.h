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
  // Keys that earlier files lack are left out if they have their default.
  const auto is_of_later_version = [](const std::string& key) {
    return key.starts_with("lora_") || key == "config" || key == "task" || key == "file";
  };
  ModelSpec usual;
  for_each_key(
      [&]<typename Member>(const std::string& key, Member& member, const Member& of_usual) {
        if (!is_of_later_version(key)) return io(name_of_model_key(key).c_str(), member);
        std::optional<Member> own;
        if (member != of_usual) own = member;
        io.if_there(key.c_str(), own);
        member = own.value_or(of_usual);
      },
      value.model, usual);
  io.if_there("usual_tokens", value.usual_tokens);
  io.if_there("inputs", value.inputs);
  io("label_smoothing", value.label_smoothing);
  io("deterministic", value.deterministic);
}

}  // namespace sluice::profiler
