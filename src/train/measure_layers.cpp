#include "train/measure_layers.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/check.h"
#include "core/clock.h"
#include "core/concat.h"
#include "core/log.h"
#include "core/thread_time.h"
#include "device/cpu_threads.h"
#include "device/memory.h"
#include "nn/weight_queue.h"
#include "pipeline/failure.h"
#include "profiler/affine_fit.h"
#include "train/optimizer.h"
#include "train/saved_tensors.h"
#include "tune/partition.h"

namespace sluice::train {
namespace {

using profiler::LayerTimes;
using profiler::MeasuredLayer;
using profiler::TimeAtSize;

class LayerBench {
 public:
  explicit LayerBench(const Setup& setup)
      : setup_(setup),
        works_alone_(setup.devices.front().kind == device::DeviceKind::kCpu && setup.cpu_threads == 1),
        stream_(device::Stream::make(setup.devices.front())),
        guard_(stream_),
        model_(models::make_model(setup.model)),
        parameters_(layers(), ParamId{0}, device::torch_device(setup.devices.front()), nullptr) {
    context_.training = true;
    context_.batch_norm = step_options(setup).batch_norm;
    context_.seed = setup.config.train.seed;
  }

  // One forward and backward pass of so many samples.
  [[nodiscard]] std::vector<LayerTimes> run(std::int64_t samples);
  // Names and bytes; the latter as they are at two sizes.
  [[nodiscard]] std::vector<MeasuredLayer> describe(std::int64_t micro_batch, bool with_memory);

 private:
  struct Pass {
    std::vector<at::Tensor> leaves;           // [layer]: its input
    std::vector<at::Tensor> outputs;          // [layer]
    std::deque<nn::WeightGradQueue> put_off;  // [layer]
    std::vector<LayerTimes> times;            // [layer]
  };

  [[nodiscard]] std::vector<nn::Layer*> layers() const {
    std::vector<nn::Layer*> result;
    for (const auto& layer : model_.layers) result.push_back(layer.get());
    return result;
  }
  // Where this thread does all the work, its own processor time: others that take the core in between do not count.
  [[nodiscard]] Nanoseconds clock() const { return works_alone_ ? thread_time_ns() : now_ns(); }
  template <typename Work>
  [[nodiscard]] double timed(const Work& work) const {
    const Nanoseconds begin = clock();
    work();
    stream_.synchronize();
    return to_s(clock() - begin);
  }
  [[nodiscard]] const at::Tensor& input_of(std::int64_t samples);
  void forward(Pass& pass, std::int64_t samples);
  void backward(Pass& pass);
  void describe_saved(std::vector<MeasuredLayer>& measured, std::int64_t micro_batch);

  const Setup& setup_;
  bool works_alone_;
  device::Stream stream_;
  device::StreamGuard guard_;
  models::Model model_;
  pipeline::FlatParameters parameters_;
  nn::ForwardContext context_;
  std::map<std::int64_t, at::Tensor> inputs_;  // by samples
};

const at::Tensor& LayerBench::input_of(std::int64_t samples) {
  const auto [entry, is_new] = inputs_.try_emplace(samples);
  if (is_new) {
    std::vector<std::int64_t> shape = model_.sample_shape;
    shape.insert(shape.begin(), samples);
    const c10::Device device = device::torch_device(setup_.devices.front());
    entry->second = model_.kind == SampleKind::kTokens
                        ? at::randint(0, model_.classes, shape, at::TensorOptions().dtype(at::kLong).device(device))
                        : at::randn(shape, at::TensorOptions().dtype(setup_.model.dtype).device(device));
  }
  return entry->second;
}

void LayerBench::forward(Pass& pass, std::int64_t samples) {
  context_.sample_ids = at::arange(samples);
  at::Tensor input = input_of(samples);
  for (const auto& layer : model_.layers) {
    // The model's own input needs no gradient.
    const at::Tensor leaf = input.detach().requires_grad_(!pass.leaves.empty());
    context_.weight_queue = &pass.put_off.emplace_back();
    at::Tensor output;
    const double time = timed([&] { output = layer->forward(leaf, context_); });
    pass.times.push_back({.samples = samples, .forward_s = time});
    pass.leaves.push_back(leaf);
    pass.outputs.push_back(output);
    input = output;
  }
}

void LayerBench::backward(Pass& pass) {
  at::Tensor gradient = at::randn_like(pass.outputs.back().detach());
  for (std::size_t i = pass.outputs.size(); i-- > 0;) {
    if (!pass.outputs[i].requires_grad()) return;  // nothing to train from here to the front
    LayerTimes& times = pass.times[i];
    times.input_gradient_s = timed([&] { torch::autograd::backward({pass.outputs[i]}, {gradient}); });
    if (!pass.put_off[i].empty()) times.weight_gradient_s = timed([&] { pass.put_off[i].run(); });
    gradient = pass.leaves[i].grad();
    pass.outputs[i].reset();
    pass.leaves[i].reset();
  }
}

std::vector<LayerTimes> LayerBench::run(std::int64_t samples) {
  Pass pass;
  forward(pass, samples);
  backward(pass);
  return std::move(pass.times);
}

// Distinct storages by address.
using Storages = std::map<const void*, std::uint64_t>;  // -> bytes

const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

// What one layer keeps of one micro-batch.
struct Kept {
  std::uint64_t bytes = 0;  // besides input and parameters
  bool input = false;
  bool output = false;
};

Kept kept_by(nn::Layer& layer, const at::Tensor& leaf, const nn::ForwardContext& context, at::Tensor& output) {
  std::set<const void*> own;
  for (const nn::Parameter* parameter : layer.parameters()) own.insert(storage_of(parameter->value));
  for (const nn::Buffer* buffer : layer.buffers()) own.insert(storage_of(buffer->value));
  Storages storages;
  for (const at::Tensor& tensor : tensors_saved_by([&] { output = layer.forward(leaf, context); })) {
    if (tensor.defined() && !own.contains(storage_of(tensor))) storages[storage_of(tensor)] = tensor.storage().nbytes();
  }
  Kept kept{.output = storages.contains(storage_of(output)) && storage_of(output) != storage_of(leaf)};
  kept.input = storages.erase(storage_of(leaf)) > 0;
  for (const auto& [storage, bytes] : storages) kept.bytes += bytes;
  return kept;
}

// The line through two sizes; `kept` of the second is more than that of the first by a multiple of the difference
// where every sample keeps the same.
AffineBytes line_through(std::int64_t small, const Kept& of_small, std::int64_t large, const Kept& of_large) {
  const std::uint64_t more = of_large.bytes - std::min(of_small.bytes, of_large.bytes);
  const std::uint64_t per_sample = more / static_cast<std::uint64_t>(large - small);
  return {.fixed = of_large.bytes - per_sample * static_cast<std::uint64_t>(large), .per_sample = per_sample};
}

void LayerBench::describe_saved(std::vector<MeasuredLayer>& measured, std::int64_t micro_batch) {
  const std::int64_t small = micro_batch == 1 ? 1 : micro_batch / 2, large = micro_batch == 1 ? 2 : micro_batch;
  at::Tensor input_small = input_of(small), input_large = input_of(large);
  nn::WeightGradQueue unused;  // forward keeps the same with a queue as without
  context_.weight_queue = &unused;
  const auto keep = [&](std::size_t i, at::Tensor& input) {
    context_.sample_ids = at::arange(input.size(0));
    at::Tensor output;
    const Kept kept = kept_by(*model_.layers[i], input.detach().requires_grad_(i > 0), context_, output);
    input = output.detach();
    return kept;
  };
  for (std::size_t i = 0; i < measured.size(); ++i) {
    LayerCost& cost = measured[i].cost;
    const Kept of_small = keep(i, input_small), of_large = keep(i, input_large);
    cost.saved_bytes = line_through(small, of_small, large, of_large);
    cost.saves_input = of_large.input;
    cost.saves_output = of_large.output;
  }
}

std::vector<MeasuredLayer> LayerBench::describe(std::int64_t micro_batch, bool with_memory) {
  const auto states = static_cast<std::uint64_t>(count_states({.kind = setup_.config.train.optimizer}));
  Pass pass;
  forward(pass, micro_batch);
  std::vector<MeasuredLayer> measured;
  for (std::size_t i = 0; i < model_.layers.size(); ++i) {
    MeasuredLayer& layer = measured.emplace_back();
    layer.name = model_.layers[i]->name();
    layer.cost.input_bytes = pass.leaves[i].nbytes() / static_cast<std::uint64_t>(micro_batch);
    layer.cost.output_bytes = pass.outputs[i].nbytes() / static_cast<std::uint64_t>(micro_batch);
    for (const nn::Parameter* parameter : model_.layers[i]->parameters())
      layer.cost.parameter_bytes += parameter->value.nbytes();
    layer.cost.gradient_bytes = layer.cost.parameter_bytes;
    layer.cost.optimizer_bytes = states * layer.cost.parameter_bytes;
  }
  backward(pass);
  for (std::size_t i = 0; i < measured.size(); ++i) measured[i].puts_off_weights = pass.times[i].weight_gradient_s > 0;
  if (with_memory) describe_saved(measured, micro_batch);
  return measured;
}

// [size][layer]
using AllTimes = std::vector<std::vector<LayerTimes>>;

void keep_shortest(std::vector<LayerTimes>& best, const std::vector<LayerTimes>& times) {
  if (best.empty()) best = times;
  for (std::size_t i = 0; i < best.size(); ++i) {
    best[i].forward_s = std::min(best[i].forward_s, times[i].forward_s);
    best[i].input_gradient_s = std::min(best[i].input_gradient_s, times[i].input_gradient_s);
    best[i].weight_gradient_s = std::min(best[i].weight_gradient_s, times[i].weight_gradient_s);
  }
}

// Runs every size once and gives those that fit.
std::vector<std::int64_t> warm_up(LayerBench& bench, const LayerMeasurement& what) {
  std::vector<std::int64_t> fitting;
  for (const std::int64_t size : what.sizes) {
    try {
      (void)bench.run(size);
      fitting.push_back(size);
    } catch (...) {
      const Error error = pipeline::describe_failure(std::current_exception(), concat("a micro-batch of ", size));
      if (error.exit_code() != ExitCode::kOutOfMemory || size <= what.needed_size) throw;
      log_warning(concat("sizes from ", size, " on are not measured: ", error.what()));
      break;
    }
  }
  return fitting;
}

AllTimes measure_times(LayerBench& bench, const std::vector<std::int64_t>& sizes, const LayerMeasurement& what) {
  AllTimes best(sizes.size());
  const Nanoseconds begin = now_ns();
  for (int round = 0; round < what.most_rounds; ++round) {
    if (round >= what.least_rounds && to_s(now_ns() - begin) > what.budget_s) break;
    // Up and down in turn, so that a drift of the machine does not lean on one end.
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::size_t place = round % 2 == 0 ? i : sizes.size() - 1 - i;
      // Twice in a row, as in training micro-batch follows micro-batch: caches hold the weights.
      for (int repeat = 0; repeat < 2; ++repeat) keep_shortest(best[place], bench.run(sizes[place]));
    }
  }
  return best;
}

AffineCost fit(const std::vector<LayerTimes>& times, double LayerTimes::*kind) {
  std::vector<TimeAtSize> points;
  for (const LayerTimes& at : times) points.push_back({static_cast<double>(at.samples), at.*kind});
  return profiler::fit_affine(points);
}

std::vector<MeasuredLayer> measure_on_this_thread(const Setup& setup, const LayerMeasurement& what) {
  device::use_cpu_threads(setup.cpu_threads);
  LayerBench bench(setup);
  const std::vector<std::int64_t> sizes = warm_up(bench, what);
  std::vector<MeasuredLayer> measured = bench.describe(what.needed_size, what.with_memory);
  const AllTimes times = measure_times(bench, sizes, what);
  for (std::size_t i = 0; i < measured.size(); ++i) {
    for (const auto& of_size : times) measured[i].times.push_back(of_size[i]);
    LayerCost& cost = measured[i].cost;
    cost.forward = fit(measured[i].times, &LayerTimes::forward_s);
    cost.input_gradient = fit(measured[i].times, &LayerTimes::input_gradient_s);
    cost.weight_gradient = fit(measured[i].times, &LayerTimes::weight_gradient_s);
  }
  return measured;
}

LayerMemory measure_memory_on_this_thread(const Setup& setup, std::int64_t micro_batch) {
  device::use_cpu_threads(setup.cpu_threads);
  constexpr device::Device kNobodys{device::DeviceKind::kCpu, 1 << 20};  // a count of its own, without a limit
  const device::MemoryScope charge(kNobodys, device::MemoryKind::kActivations);
  LayerBench bench(setup);
  (void)bench.run(micro_batch);
  LayerMemory memory;
  for (const MeasuredLayer& layer : bench.describe(micro_batch, /*with_memory=*/true))
    memory.layers.push_back(layer.cost);
  device::reset_peak_memory(kNobodys);
  const std::uint64_t before = device::memory_use(kNobodys).current;
  (void)bench.run(micro_batch);
  const std::uint64_t taken = device::memory_use(kNobodys).peak - before;
  memory.transient_bytes =
      taken - std::min(taken, tune::kept_bytes(memory.layers, static_cast<std::uint64_t>(micro_batch)));
  return memory;
}

// In a thread of its own, so that the device's thread count does not stay with the caller's.
void measure_apart(const std::function<void()>& measure) {
  std::exception_ptr failure;
  std::jthread([&] {
    try {
      measure();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) throw pipeline::describe_failure(failure, "measuring the layers");
}

}  // namespace

std::vector<MeasuredLayer> measure_layers(const Setup& setup, const LayerMeasurement& what) {
  check(!what.sizes.empty() && std::ranges::is_sorted(what.sizes) && what.sizes.front() >= 1,
        "layers are measured at ascending sizes of at least one sample");
  std::vector<MeasuredLayer> measured;
  measure_apart([&] { measured = measure_on_this_thread(setup, what); });
  return measured;
}

LayerMemory measure_layer_memory(const Setup& setup, std::int64_t micro_batch) {
  LayerMemory memory;
  measure_apart([&] { memory = measure_memory_on_this_thread(setup, micro_batch); });
  return memory;
}

std::vector<std::int64_t> sizes_to_profile(std::int64_t micro_batch) {
  constexpr std::size_t kFewest = 4;
  constexpr std::int64_t kRange = 16;
  std::set<std::int64_t> sizes{micro_batch};
  std::int64_t size = 1;
  while (size < micro_batch / kRange) size *= 2;
  for (; size < micro_batch || sizes.size() < kFewest; size *= 2) sizes.insert(size);
  return {sizes.begin(), sizes.end()};
}

}  // namespace sluice::train
