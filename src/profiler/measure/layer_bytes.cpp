#include "profiler/measure/layer_bytes.h"

#include <algorithm>
#include <exception>
#include <map>

#include "core/divided_up.h"
#include "core/error.h"
#include "device/memory.h"
#include "pipeline/failure.h"
#include "pipeline/saved_tensors.h"

namespace sluice::measure {
namespace {

using pipeline::storage_of;
using Part = LayerBench::Part;

// Distinct storages by address, with their bytes.
class Storages {
 public:
  void add(const at::Tensor& tensor) {
    if (tensor.defined()) bytes_[storage_of(tensor)] = tensor.storage().nbytes();
  }
  // Whether it was there.
  bool take_out(const at::Tensor& tensor) { return tensor.defined() && bytes_.erase(storage_of(tensor)) > 0; }
  [[nodiscard]] bool contains(const at::Tensor& tensor) const { return bytes_.contains(storage_of(tensor)); }
  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [storage, bytes] : bytes_) sum += bytes;
    return sum;
  }

 private:
  std::map<const void*, std::uint64_t> bytes_;
};

// Of one layer, at one size of a micro-batch.
struct BytesAtSize {
  std::uint64_t saved = 0;  // besides input and parameters
  bool saves_input = false;
  bool saves_output = false;
  std::uint64_t loss = 0, loss_working = 0;
  std::uint64_t stash = 0;
  bool stashes_input = false, stashes_output_gradient = false;
  std::uint64_t transformed = 0;
  std::uint64_t forward = 0, backward = 0, input_gradient = 0, weight_gradient = 0;  // working
};
using LayersAtSize = std::vector<BytesAtSize>;

void find_saved(LayerBench& bench, std::int64_t samples, LayersAtSize& layers) {
  bench.run(samples, /*puts_off_weights=*/true, [&](Part part, std::size_t i, const std::function<void()>& work) {
    BytesAtSize& layer = layers[i];
    if (part == Part::kBackward || part == Part::kLossBackward) return work();
    if (part == Part::kWeightGradient) {
      Storages waiting;
      for (const at::Tensor& tensor : bench.running(i).put_off.kept()) waiting.add(tensor);
      layer.stash = waiting.bytes();
      layer.stashes_input = waiting.contains(bench.running(i).input);
      layer.stashes_output_gradient = waiting.contains(bench.running(i).output_gradient);
      return work();
    }
    Storages saved;
    for (const at::Tensor& tensor : pipeline::tensors_saved_by(work)) saved.add(tensor);
    for (const nn::Parameter* parameter : bench.layers()[i]->parameters()) saved.take_out(parameter->value);
    for (const nn::Buffer* buffer : bench.layers()[i]->buffers()) saved.take_out(buffer->value);
    const at::Tensor &input = bench.running(i).input, &output = bench.running(i).output;
    if (part == Part::kLoss) {
      saved.take_out(bench.targets());
      if (layer.saves_output) saved.take_out(output);
      layer.loss = saved.bytes();
      return;
    }
    layer.saves_input = saved.take_out(input);
    layer.saves_output = saved.contains(output) && storage_of(output) != storage_of(input);
    layer.saved = saved.bytes();
  });
}

// How far above where it began the memory of a device has risen.
class Rise {
 public:
  explicit Rise(device::Device device) : device_(device) { begin(); }
  void begin() {
    device::reset_peak_memory(device_);
    before_ = device::memory_use(device_).current;
  }
  [[nodiscard]] std::uint64_t bytes() const { return device::memory_use(device_).peak - before_; }

 private:
  device::Device device_;
  std::uint64_t before_ = 0;
};

void find_working(LayerBench& bench, device::Device device, std::int64_t samples, bool puts_off_weights,
                  LayersAtSize& layers) {
  Rise rise(device);
  bench.run(samples, puts_off_weights, [&](Part part, std::size_t i, const std::function<void()>& work) {
    if (part != Part::kLossBackward) rise.begin();  // one moment with the loss
    work();
    BytesAtSize& layer = layers[i];
    switch (part) {
      case Part::kForward: layer.forward = rise.bytes(); break;
      case Part::kLoss: break;
      case Part::kLossBackward: layer.loss_working = rise.bytes(); break;
      case Part::kBackward: (puts_off_weights ? layer.input_gradient : layer.backward) = rise.bytes(); break;
      case Part::kWeightGradient: layer.weight_gradient = rise.bytes(); break;
    }
  });
}

LayersAtSize bytes_at(LayerBench& bench, device::Device device, std::int64_t samples) {
  LayersAtSize layers(bench.layers().size());
  bench.forget_transformed();
  find_saved(bench, samples, layers);
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i].transformed = bench.transformed_bytes(i);
  if (!device::peak_bytes(device)) return layers;  // not counted
  const device::MemoryScope charge(device, device::MemoryKind::kActivations);
  for (const bool puts_off_weights : {false, true}) find_working(bench, device, samples, puts_off_weights, layers);
  return layers;
}

struct TwoSizes {
  std::int64_t small, large;
  LayersAtSize at_small, at_large;
};

// The micro-batch and its half; one sample and two, or where two do not fit, one alone.
TwoSizes two_sizes(LayerBench& bench, device::Device device, std::int64_t micro_batch) {
  if (micro_batch > 1) {
    const std::int64_t half = micro_batch / 2;
    return {half, micro_batch, bytes_at(bench, device, half), bytes_at(bench, device, micro_batch)};
  }
  const LayersAtSize at_one = bytes_at(bench, device, 1);
  try {
    return {1, 2, at_one, bytes_at(bench, device, 2)};
  } catch (...) {
    const Error error = pipeline::describe_failure(std::current_exception(), "a micro-batch of 2");
    if (error.exit_code() != ExitCode::kOutOfMemory) throw;
    return {1, 1, at_one, at_one};
  }
}

// Exact at the larger size; at others where every sample takes the same. Through nothing where the small size takes
// less than its share of the large one, and where there is one size.
AffineBytes line_through(std::int64_t small, std::uint64_t of_small, std::int64_t large, std::uint64_t of_large) {
  const auto samples = static_cast<std::uint64_t>(large);
  const AffineBytes through_nothing{.fixed = 0, .per_sample = divided_up(of_large, samples)};
  if (small == large) return through_nothing;
  const std::uint64_t more = of_large - std::min(of_small, of_large);
  const std::uint64_t per_sample = more / static_cast<std::uint64_t>(large - small);
  if (per_sample * samples > of_large) return through_nothing;
  return {.fixed = of_large - per_sample * samples, .per_sample = per_sample};
}

}  // namespace

void measure_bytes(LayerBench& bench, const Workload& workload, std::int64_t micro_batch,
                   std::vector<LayerCost>& costs) {
  // On a CPU device, a count of its own that has no limit.
  constexpr device::Device kNobodys{device::DeviceKind::kCpu, 1 << 20};
  const device::Device own = workload.device;
  const device::Device device = own.kind == device::DeviceKind::kCpu ? kNobodys : own;
  const auto [small, large, at_small, at_large] = two_sizes(bench, device, micro_batch);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const BytesAtSize &less = at_small[i], &more = at_large[i];
    const auto line = [&, small = small, large = large](std::uint64_t BytesAtSize::*bytes) {
      return line_through(small, less.*bytes, large, more.*bytes);
    };
    LayerCost& cost = costs[i];
    cost.saved_bytes = line(&BytesAtSize::saved);
    cost.saves_input = more.saves_input;
    cost.saves_output = more.saves_output;
    cost.loss_bytes = line(&BytesAtSize::loss);
    cost.loss_working = line(&BytesAtSize::loss_working);
    cost.stash_bytes = line(&BytesAtSize::stash);
    cost.stashes_input = more.stashes_input;
    cost.stashes_output_gradient = more.stashes_output_gradient;
    cost.transformed_bytes = more.transformed;
    cost.working = {.forward = line(&BytesAtSize::forward),
                    .backward = line(&BytesAtSize::backward),
                    .input_gradient = line(&BytesAtSize::input_gradient),
                    .weight_gradient = line(&BytesAtSize::weight_gradient)};
  }
}

}  // namespace sluice::measure
