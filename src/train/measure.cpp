// The measurements behind "auto": layer times for the partition, step times for the number of chunks.
#include <algorithm>
#include <exception>
#include <limits>
#include <thread>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/clock.h"
#include "core/concat.h"
#include "core/text.h"
#include "device/cpu_threads.h"
#include "pipeline/failure.h"
#include "train/setup.h"
#include "train/state.h"

namespace sluice::train {
namespace {

constexpr int kWarmUp = 1;
constexpr int kRepeats = 3;  // the smallest time counts: noise only adds

double seconds_since(Nanoseconds begin) { return to_s(now_ns() - begin); }

LayerCost measure_layer(nn::Layer& layer, const at::Tensor& input, const device::Stream& stream,
                        bool needs_input_gradient, at::Tensor& output) {
  LayerCost cost{.forward_s = std::numeric_limits<double>::infinity(),
                 .backward_s = std::numeric_limits<double>::infinity()};
  for (int repeat = 0; repeat < kWarmUp + kRepeats; ++repeat) {
    const at::Tensor leaf = input.detach().requires_grad_(needs_input_gradient);
    const Nanoseconds begin = now_ns();
    output = layer.forward(leaf, {.training = true, .sample_ids = at::arange(input.size(0))});
    stream.synchronize();
    const double forward = seconds_since(begin);
    const at::Tensor gradient = at::ones_like(output);
    const Nanoseconds middle = now_ns();
    if (output.requires_grad()) torch::autograd::backward({output}, {gradient});
    stream.synchronize();
    if (repeat < kWarmUp) continue;
    cost.forward_s = std::min(cost.forward_s, forward);
    cost.backward_s = std::min(cost.backward_s, seconds_since(middle));
  }
  output = output.detach();
  cost.activation_bytes = output.nbytes();
  for (const nn::Parameter* parameter : layer.parameters()) cost.parameter_bytes += parameter->value.nbytes();
  return cost;
}

std::vector<LayerCost> measure_on_this_thread(const Setup& setup, std::int64_t samples) {
  device::use_cpu_threads(setup.cpu_threads);
  const auto stream = device::Stream::make(setup.devices.front());
  const device::StreamGuard guard(stream);
  auto model = models::make_model(setup.model);
  std::vector<nn::Layer*> layers;
  for (const auto& layer : model.layers) layers.push_back(layer.get());
  const pipeline::FlatParameters on_device(layers, ParamId{0}, device::torch_device(setup.devices.front()), nullptr);

  std::vector<std::int64_t> shape = model.sample_shape;
  shape.insert(shape.begin(), samples);
  at::Tensor input = at::randn(
      shape, at::TensorOptions().dtype(setup.model.dtype).device(device::torch_device(setup.devices.front())));
  std::vector<LayerCost> costs;
  for (const auto& layer : model.layers) {
    at::Tensor output;
    costs.push_back(measure_layer(*layer, input, stream, /*needs_input_gradient=*/!costs.empty(), output));
    input = output;
  }
  return costs;
}

double time_step(TrainStep& step, const StepBatch& batch, int chunks) {
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < kWarmUp + kRepeats; ++repeat) {
    const Nanoseconds begin = now_ns();
    step.compute_gradients(batch, 0, chunks);
    if (repeat >= kWarmUp) best = std::min(best, seconds_since(begin));
  }
  return best;
}

// All processes see the mean, so that they decide alike.
double mean_over_processes(const Composition& composition, double seconds) {
  if (!composition.communicator) return seconds;
  const at::Tensor sum = at::full({1}, seconds, at::kDouble);
  composition.communicator->all_reduce(sum).wait();
  return sum.item<double>() / composition.communicator->size();
}

}  // namespace

std::vector<LayerCost> measure_layers(const Setup& setup) {
  // In a thread of its own, so that the device's thread count does not stay with the caller's.
  std::vector<LayerCost> costs;
  std::exception_ptr failure;
  const config::Config& config = setup.config;
  const int chunks = configured_chunks(config, setup.place.processes);
  const std::int64_t samples = std::max<std::int64_t>(config.train.global_batch / count_replicas(setup) / chunks, 1);
  std::jthread([&] {
    try {
      costs = measure_on_this_thread(setup, samples);
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) throw pipeline::describe_failure(failure, "measuring the layers");
  return costs;
}

ChunkChoice choose_chunks(const Setup& setup, Composition& composition, TrainStep& step, const StepBatch& batch) {
  const BufferSnapshot buffers(composition);
  const std::int64_t of_replica = batch.global_samples / count_replicas(setup);
  const int most = static_cast<int>(std::clamp<std::int64_t>(of_replica, 1, 4LL * composition.plan.stages()));
  ChunkChoice choice;
  double best = std::numeric_limits<double>::infinity();
  for (int chunks = 1; chunks <= most; chunks *= 2) {
    const double time = mean_over_processes(composition, time_step(step, batch, chunks));
    choice.why += concat(choice.why.empty() ? "" : ", ", chunks, ": ", fixed(time * 1000, 1), " ms");
    if (time < best) {
      best = time;
      choice.chunks = chunks;
    }
  }
  buffers.restore();
  composition.executor->recorder().clear();
  return choice;
}

}  // namespace sluice::train
