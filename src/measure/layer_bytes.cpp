#include "measure/layer_bytes.h"

#include <algorithm>
#include <exception>
#include <map>
#include <span>

#include "core/concat.h"
#include "core/divided_up.h"
#include "core/error.h"
#include "core/host.h"
#include "device/memory.h"
#include "pipeline/failure.h"
#include "pipeline/saved_tensors.h"

namespace sluice::measure {
namespace {

using pipeline::storage_of;
using Part = LayerBench::Part;
using Backward = LayerBench::Backward;
using profiler::LayerBytes;

class Storages {
 public:
  void add(const at::Tensor& tensor) {
    if (tensor.defined()) bytes_[storage_of(tensor)] = tensor.storage().nbytes();
  }
  bool take_out(const at::Tensor& tensor) { return tensor.defined() && bytes_.erase(storage_of(tensor)) > 0; }
  void take_out_all(std::span<const at::Tensor> tensors) {
    for (const at::Tensor& tensor : tensors) take_out(tensor);
  }
  [[nodiscard]] bool contains(const at::Tensor& tensor) const { return bytes_.contains(storage_of(tensor)); }
  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [storage, bytes] : bytes_) sum += bytes;
    return sum;
  }

 private:
  std::map<const void*, std::uint64_t> bytes_;
};

struct Working {
  std::uint64_t forward = 0, weight_gradient = 0;
  std::uint64_t backward = 0, input_gradient = 0, held_backward = 0, held_input_gradient = 0;
};

struct BytesAtSize {
  std::uint64_t saved = 0;  // besides input and parameters
  bool saves_input = false;
  bool saves_output = false;
  std::uint64_t loss = 0, loss_working = 0;
  std::uint64_t stash = 0;
  bool stashes_input = false, stashes_output_gradient = false;
  std::uint64_t transformed = 0;
  Working working;
  Working once;  // without keeping transformed weights
};
using LayersAtSize = std::vector<BytesAtSize>;

void find_saved(LayerBench& bench, std::int64_t samples, LayersAtSize& layers) {
  bench.run(samples, /*defers_weights=*/true, [&](Part part, std::size_t i, const std::function<void()>& work) {
    BytesAtSize& layer = layers[i];
    if (part == Part::kBackward || part == Part::kLossBackward) return work();
    if (part == Part::kWeightGradient) {
      Storages waiting;
      for (const at::Tensor& tensor : bench.running(i).deferred.kept()) waiting.add(tensor);
      layer.stash = waiting.bytes();
      layer.stashes_input = waiting.contains(bench.running(i).inputs.front());
      layer.stashes_output_gradient = waiting.contains(bench.running(i).output_gradients.front());
      return work();
    }
    Storages saved;
    for (const at::Tensor& tensor : pipeline::tensors_saved_by(work)) saved.add(tensor);
    for (const nn::Parameter* parameter : bench.layers()[i]->parameters()) saved.take_out(parameter->value);
    for (const nn::Buffer* buffer : bench.layers()[i]->buffers()) saved.take_out(buffer->value);
    const nn::Tensors& inputs = bench.running(i).inputs;
    const at::Tensor &input = inputs.front(), &output = bench.running(i).outputs.front();
    if (part == Part::kLoss) {
      saved.take_out_all(bench.targets());
      if (layer.saves_output) saved.take_out(output);
      layer.loss = saved.bytes();
      return;
    }
    layer.saves_input = saved.take_out(input);
    // All layers share masks and positions, which their micro-batch holds.
    saved.take_out_all(std::span(inputs).subspan(1));
    layer.saves_output = saved.contains(output) && storage_of(output) != storage_of(input);
    layer.saved = saved.bytes();
  });
}

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

std::uint64_t& backward_of(Working& working, bool defers_weights, Backward how) {
  if (how == Backward::kHeld) return defers_weights ? working.held_input_gradient : working.held_backward;
  return defers_weights ? working.input_gradient : working.backward;
}

void find_working(LayerBench& bench, device::Device device, std::int64_t samples, Working BytesAtSize::*which,
                  LayersAtSize& layers) {
  Rise rise(device);
  for (const Backward how : {Backward::kInGraph, Backward::kHeld}) {
    for (const bool defers_weights : {false, true}) {
      const auto watch = [&](Part part, std::size_t i, const std::function<void()>& work) {
        if (part != Part::kLossBackward) rise.begin();  // the loss counts as one moment
        work();
        Working& working = layers[i].*which;
        switch (part) {
          case Part::kForward: working.forward = rise.bytes(); break;
          case Part::kLoss: break;
          case Part::kLossBackward: layers[i].loss_working = rise.bytes(); break;
          case Part::kBackward: backward_of(working, defers_weights, how) = rise.bytes(); break;
          case Part::kWeightGradient: working.weight_gradient = rise.bytes(); break;
        }
      };
      bench.run(samples, defers_weights, watch, how);
    }
  }
}

LayersAtSize bytes_at(LayerBench& bench, device::Device device, std::int64_t samples) {
  LayersAtSize layers(bench.layers().size());
  bench.forget_transformed();
  find_saved(bench, samples, layers);
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i].transformed = bench.transformed_bytes(i);
  if (!device::peak_bytes(device)) return layers;
  const device::MemoryScope charge(device, device::MemoryKind::kActivations);
  find_working(bench, device, samples, &BytesAtSize::working, layers);
  for (BytesAtSize& layer : layers) layer.once = layer.working;
  if (std::ranges::none_of(layers, [](const BytesAtSize& layer) { return layer.transformed > 0; })) return layers;
  bench.keep_transformed(false);
  find_working(bench, device, samples, &BytesAtSize::once, layers);
  bench.keep_transformed(true);
  return layers;
}

// The requested sizes, plus half of the first unless it is 1. A single size of 1 also gets 2.
std::vector<std::int64_t> sizes_to_run(const std::vector<std::int64_t>& asked) {
  std::vector<std::int64_t> sizes = asked;
  if (asked.front() > 1) sizes.insert(sizes.begin(), asked.front() / 2);
  if (sizes == std::vector<std::int64_t>{1}) sizes.push_back(2);
  return sizes;
}

double held_by(const LayersAtSize& layers) {
  std::uint64_t kept = 0, working = 0;
  for (const BytesAtSize& layer : layers) {
    kept += layer.saved + layer.once.forward;  // includes an output that is not saved
    working = std::max({working, layer.once.held_backward, layer.once.held_input_gradient, layer.loss_working});
  }
  return static_cast<double>(kept + working);
}

// Whether there is room for a size `times` as large. On a CPU running out of memory causes no error that can be caught.
bool has_room(device::Device device, const LayersAtSize& smaller, double times) {
  return device.kind != device::DeviceKind::kCpu ||
         times * held_by(smaller) < static_cast<double>(available_memory()) / 2;
}

// Measures all sizes up to `needed`, and larger ones while there is room.
std::vector<LayersAtSize> bytes_at_sizes(LayerBench& bench, device::Device device,
                                         const std::vector<std::int64_t>& sizes, std::int64_t needed) {
  std::vector<LayersAtSize> at;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t size = sizes[i];
    const double times = i == 0 ? 1 : static_cast<double>(size) / static_cast<double>(sizes[i - 1]);
    if (size > needed && i > 0 && !has_room(device, at.back(), times)) break;
    try {
      at.push_back(bytes_at(bench, device, size));
    } catch (...) {
      const Error error = pipeline::describe_failure(std::current_exception(), concat("a micro-batch of ", size));
      if (error.exit_code() != ExitCode::kOutOfMemory || size <= needed) throw;
      break;
    }
  }
  return at;
}

// Exact at the larger size, and everywhere if all samples need the same. The line goes through zero if the smaller size
// takes less than its share of the larger one.
AffineBytes line_through(std::int64_t small, std::uint64_t of_small, std::int64_t large, std::uint64_t of_large) {
  const auto samples = static_cast<std::uint64_t>(large);
  const AffineBytes through_nothing{.fixed = 0, .per_sample = divided_up(of_large, samples)};
  const std::uint64_t more = of_large - std::min(of_small, of_large);
  const std::uint64_t per_sample = more / static_cast<std::uint64_t>(large - small);
  if (per_sample * samples > of_large) return through_nothing;
  return {.fixed = of_large - per_sample * samples, .per_sample = per_sample};
}

// Exact at one sample. It rises to the value at two samples as far as a line with non-negative parts allows.
AffineBytes line_from_one(std::uint64_t of_one, std::uint64_t of_two) {
  const std::uint64_t per_sample = of_two - std::min(of_one, of_two);
  if (per_sample > of_one) return {.fixed = 0, .per_sample = of_one};
  return {.fixed = of_one - per_sample, .per_sample = per_sample};
}

// line: makes a line from a getter of a size's bytes; the flags are those of `more`.
template <typename Line>
WorkingBytes working_bytes(Working BytesAtSize::*which, const Line& line) {
  const auto of = [&](std::uint64_t Working::*part) {
    return line([=](const BytesAtSize& layer) { return (layer.*which).*part; });
  };
  return {.forward = of(&Working::forward),
          .backward = of(&Working::backward),
          .input_gradient = of(&Working::input_gradient),
          .weight_gradient = of(&Working::weight_gradient),
          .held_backward = of(&Working::held_backward),
          .held_input_gradient = of(&Working::held_input_gradient)};
}

template <typename Line>
LayerBytes layer_bytes(std::int64_t samples, const BytesAtSize& more, const Line& line) {
  const auto of = [&](std::uint64_t BytesAtSize::*bytes) {
    return line([=](const BytesAtSize& layer) { return layer.*bytes; });
  };
  return {.samples = samples,
          .saved = of(&BytesAtSize::saved),
          .saves_input = more.saves_input,
          .saves_output = more.saves_output,
          .loss = of(&BytesAtSize::loss),
          .loss_working = of(&BytesAtSize::loss_working),
          .stash = of(&BytesAtSize::stash),
          .stashes_input = more.stashes_input,
          .stashes_output_gradient = more.stashes_output_gradient,
          .working = working_bytes(&BytesAtSize::working, line),
          .transformed = more.transformed,
          .working_once = more.transformed > 0 ? std::optional(working_bytes(&BytesAtSize::once, line)) : std::nullopt};
}

std::vector<LayerBytes> lines_of(std::size_t i, const std::vector<std::int64_t>& sizes,
                                 const std::vector<LayersAtSize>& at) {
  std::vector<LayerBytes> lines;
  if (sizes.front() == 1) {
    const BytesAtSize& one = at.front()[i];
    const BytesAtSize* const two = at.size() > 1 && sizes[1] == 2 ? &at[1][i] : nullptr;
    lines.push_back(layer_bytes(1, one, [&](const auto& bytes) {
      return line_from_one(bytes(one), two != nullptr ? bytes(*two) : 2 * bytes(one));
    }));
  }
  for (std::size_t s = 1; s < at.size(); ++s) {
    const BytesAtSize &less = at[s - 1][i], &more = at[s][i];
    lines.push_back(layer_bytes(sizes[s], more, [&](const auto& bytes) {
      return line_through(sizes[s - 1], bytes(less), sizes[s], bytes(more));
    }));
  }
  return lines;
}

}  // namespace

int passes_for_bytes(const device::Device& device) { return device::peak_bytes(device) ? 9 : 1; }

std::vector<std::vector<LayerBytes>> measure_bytes(LayerBench& bench, const Workload& workload,
                                                   const std::vector<std::int64_t>& sizes, std::int64_t needed) {
  // CPU device number with its own, unlimited memory count.
  constexpr device::Device kNobodys{device::DeviceKind::kCpu, 1 << 20};
  const device::Device own = workload.device;
  const device::Device device = own.kind == device::DeviceKind::kCpu ? kNobodys : own;
  const std::vector<std::int64_t> run = sizes_to_run(sizes);
  const std::vector<LayersAtSize> at = bytes_at_sizes(bench, device, run, needed);
  std::vector<std::vector<LayerBytes>> bytes(bench.layers().size());
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = lines_of(i, run, at);
  return bytes;
}

}  // namespace sluice::measure
