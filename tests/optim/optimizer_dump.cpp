// optimizer_dump IN OUT OPTIONS: runs our optimizer over given gradients, for compare_with_torch.py.
// IN: safetensors, values [elements] and gradients [steps, elements]. OPTIONS: JSON with members of OptimizerOptions,
// "lr", "ranges": [[begin, end, decays, lr_factor], ...], and "phases": [[steps, first], ...]: for so many steps the
// ranges before number `first` are frozen; each phase has a new optimizer, as after a resume. OUT: values and each
// state.
#include <algorithm>
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

struct Training {
  OptimizerOptions options;
  double lr = 0;
  int parts = 1;
  std::vector<UpdateRange> ranges;
  std::vector<std::int64_t> updates;  // [range]
  storage::TensorMap kept;            // values and states
  std::int64_t steps = 0;
};

void run_phase(Training& training, const at::Tensor& gradients_of_steps, std::int64_t steps, std::ptrdiff_t first) {
  const std::int64_t begin = training.ranges[first].begin;
  const auto trained = [begin](const at::Tensor& flat) { return flat.narrow(0, begin, flat.numel() - begin); };
  std::vector<UpdateRange> ranges(training.ranges.begin() + first, training.ranges.end());
  for (UpdateRange& range : ranges) range.begin -= begin, range.end -= begin;
  const at::Tensor values = training.kept.at("values"), gradients = at::zeros_like(values);
  Optimizer optimizer(training.options, trained(values), trained(gradients), ranges);
  for (const auto& [name, state] : optimizer.states())
    state.copy_(trained(training.kept.try_emplace(name, at::zeros_like(values)).first->second));
  optimizer.set_steps(training.steps, {training.updates.begin() + first, training.updates.end()});
  for (const std::int64_t end = training.steps + steps; training.steps < end; ++training.steps) {
    gradients.copy_(gradients_of_steps[training.steps]);
    optimizer.begin_step();
    for (int part = 0; part < training.parts; ++part) optimizer.update(training.lr, 1, {part, training.parts});
  }
  for (const auto& [name, state] : optimizer.states()) trained(training.kept.at(name)).copy_(state);
  std::ranges::copy(optimizer.updates(), training.updates.begin() + first);
}

void run(const char* in, const char* out, const nlohmann::json& json) {
  const storage::TensorMap given = storage::read_safetensors(in).tensors;
  Training training{.options = options_in(json), .lr = json.at("lr"), .parts = json.at("parts")};
  for (const auto& range : json.at("ranges")) training.ranges.push_back({range[0], range[1], range[2], range[3]});
  training.updates.resize(training.ranges.size());
  training.kept["values"] = given.at("values").clone();
  for (const auto& phase : json.at("phases")) run_phase(training, given.at("gradients"), phase[0], phase[1]);
  storage::write_safetensors(out, training.kept);
}

}  // namespace
}  // namespace sluice::optim

int main(int /*argc*/, char** argv) {
  sluice::optim::run(argv[1], argv[2], nlohmann::json::parse(argv[3]));
  return 0;
}
