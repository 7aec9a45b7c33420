// Runs our optimizer over given gradients, for compare_with_torch.py: optimizer_dump IN OUT OPTIONS
// IN: safetensors, values [elements] and gradients [steps, elements]. OPTIONS: JSON with the members of
// OptimizerOptions that are asked for, "lr", and "ranges": [[begin, end, decays, lr_factor], ...]. OUT: values and each
// state.
#include <fstream>
#include <iostream>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "optim/optimizer.h"
#include "storage/safetensors.h"

namespace sluice::optim {
namespace {

OptimizerOptions options_in(const nlohmann::json& json) {
  OptimizerOptions options;
  options.kind = json.at("kind");
  options.momentum = json.value("momentum", options.momentum);
  options.nesterov = json.value("nesterov", options.nesterov);
  options.weight_decay = json.value("weight_decay", options.weight_decay);
  options.rms_alpha = json.value("rms_alpha", options.rms_alpha);
  options.beta1 = json.value("beta1", options.beta1);
  options.beta2 = json.value("beta2", options.beta2);
  options.eps = json.value("eps", options.eps);
  options.amsgrad = json.value("amsgrad", options.amsgrad);
  options.ema_decay = json.value("ema_decay", options.ema_decay);
  options.ema_every = json.value("ema_every", options.ema_every);
  return options;
}

void run(const char* in, const char* out, const nlohmann::json& json) {
  const storage::TensorMap given = storage::read_safetensors(in).tensors;
  std::vector<UpdateRange> ranges;
  for (const auto& range : json.at("ranges")) ranges.push_back({range[0], range[1], range[2], range[3]});
  const at::Tensor values = given.at("values").clone(), gradients = at::zeros_like(values);
  Optimizer optimizer(options_in(json), values, gradients, ranges);
  const int parts = json.at("parts");
  for (std::int64_t step = 0; step < given.at("gradients").size(0); ++step) {
    gradients.copy_(given.at("gradients")[step]);
    optimizer.begin_step();
    for (int part = 0; part < parts; ++part) optimizer.update(json.at("lr"), 1, {part, parts});
  }
  storage::TensorMap found(optimizer.states().begin(), optimizer.states().end());
  found["values"] = values;
  storage::write_safetensors(out, found);
}

}  // namespace
}  // namespace sluice::optim

int main(int /*argc*/, char** argv) {
  sluice::optim::run(argv[1], argv[2], nlohmann::json::parse(argv[3]));
  return 0;
}
