// sleepy_layers: a model whose layers sleep, or compute products, for a planted time, in real steps of the engine.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "comm/processes.h"
#include "core/concat.h"
#include "engine/train_step.h"
#include "profiler/breakdown.h"

namespace sluice::train {

inline constexpr int kWidth = 4;

// How long to sleep, or how many products of a fixed size to compute, and how long that took since the last reset().
struct Planted {
  std::chrono::milliseconds forward{0}, backward{0};
  int products = 0;  // in forward; twice as many in backward
  Nanoseconds slept_forward = 0, slept_backward = 0;

  void reset() { slept_forward = slept_backward = 0; }
  static void spend(std::chrono::milliseconds time, int products, Nanoseconds& spent) {
    const Nanoseconds begin = now_ns();
    std::this_thread::sleep_for(time);
    const at::Tensor matrix = at::full({192, 192}, 0.5);
    for (int i = 0; i < products; ++i) (void)at::mm(matrix, matrix);
    spent += now_ns() - begin;
  }
};

class SleepyProduct : public torch::autograd::Function<SleepyProduct> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            Planted* planted) {
    Planted::spend(planted->forward, planted->products, planted->slept_forward);
    ctx->save_for_backward({x, weight});
    ctx->saved_data["planted"] = reinterpret_cast<std::int64_t>(planted);
    return x * weight;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    auto* planted = reinterpret_cast<Planted*>(ctx->saved_data["planted"].toInt());
    Planted::spend(planted->backward, 2 * planted->products, planted->slept_backward);
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    return {grads[0] * saved[1], (grads[0] * saved[0]).sum(0), {}};
  }
};

class SleepyLayer final : public nn::Layer {
 public:
  SleepyLayer(const std::string& name, Planted& planted)
      : Layer(name), weight_{name + ".weight", at::ones({kWidth}).requires_grad_()}, planted_(&planted) {}
  at::Tensor forward(const at::Tensor& input, const nn::ForwardContext&) override {
    return SleepyProduct::apply(input, weight_.value, planted_);
  }
  std::vector<nn::Parameter*> parameters() override { return {&weight_}; }

 private:
  nn::Parameter weight_;
  Planted* planted_;
};

// A pipeline of one sleepy layer a stage: planted[replica][stage].
using Plantation = std::vector<std::vector<Planted>>;

inline engine::Composition compose_sleepy(Plantation& planted, int chunks, comm::Processes* processes = nullptr,
                                          const std::string& schedule = "1f1b") {
  const auto replicas = static_cast<int>(planted.size()), stages = static_cast<int>(planted[0].size());
  int next = 0;  // replicas are made one after the other
  engine::ComposeOptions options{
      .model_name = "sleepy",
      .make_layers =
          [&] {
            pipeline::LayerList layers;
            for (int s = 0; s < stages; ++s)
              layers.push_back(std::make_unique<SleepyLayer>(concat("l", s), planted[next][s]));
            ++next;
            return layers;
          },
      .optimizer = {.kind = "sgd"},
      .communicators = processes == nullptr ? nullptr : std::make_shared<engine::Communicators>(*processes)};
  for (int i = 0; i < replicas * stages; ++i) options.devices.push_back({device::DeviceKind::kCpu, i});
  return engine::compose(
      {.partition = {std::vector<int>(stages, 1)}, .replicas = replicas, .chunks = chunks, .schedule = schedule},
      options);
}

inline pipeline::MicroBatch batch_of(std::int64_t samples) {
  return {{at::ones({samples, kWidth})}, {at::zeros({samples}, at::kLong)}, at::arange(samples)};
}

inline profiler::StepBreakdown run_step(engine::Composition& grid, engine::TrainStep& step,
                                        const engine::StepBatch& batch, std::int64_t number) {
  Recorder& recorder = grid.executor->recorder();
  recorder.clear();
  const Nanoseconds begin = now_ns();
  (void)step.run(batch, number, 0.1);
  return profiler::break_down(recorder.collect(number, begin, now_ns()));
}

}  // namespace sluice::train
