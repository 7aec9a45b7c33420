#include "support/toy_model.h"

#include <cmath>
#include <numeric>

#include "core/rng.h"

namespace sluice::test {
namespace {

at::Tensor keyed_normal(const std::vector<std::int64_t>& sizes, std::uint64_t key) {
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  RngStream rng(key);
  auto* data = tensor.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) data[i] = rng.normal();
  return tensor;
}

}  // namespace

TanhLayer::TanhLayer(const std::string& name, int width, std::uint64_t seed)
    : Layer(name),
      weight_{name + ".weight",
              (keyed_normal({width, width}, derive_key(seed, 1)) / std::sqrt(width)).requires_grad_()},
      bias_{name + ".bias", keyed_normal({width}, derive_key(seed, 2)).requires_grad_()} {}

at::Tensor TanhLayer::forward(const at::Tensor& input, const nn::ForwardContext&) {
  return at::tanh(at::linear(input, weight_.value, bias_.value));
}

pipeline::LayerList make_toy_layers(int layers, int width, std::uint64_t seed) {
  pipeline::LayerList list;
  for (int i = 0; i < layers; ++i)
    list.push_back(std::make_unique<TanhLayer>("layer" + std::to_string(i), width, derive_key(seed, i)));
  return list;
}

at::Tensor toy_loss(const nn::Tensors& outputs, const nn::Tensors& targets) {
  const at::Tensor& output = outputs.front();
  return (output - targets.front().to(output.scalar_type()).unsqueeze(1) * 0.1).square().sum();
}

pipeline::MicroBatch make_toy_batch(std::int64_t samples, int width, std::uint64_t seed) {
  return {{keyed_normal({samples, width}, seed)}, {at::arange(samples) % 7}, at::arange(samples)};
}

std::vector<std::vector<device::Device>> cpu_grid(int replicas, int stages) {
  std::vector<std::vector<device::Device>> grid(replicas);
  for (int r = 0; r < replicas; ++r) {
    for (int s = 0; s < stages; ++s) grid[r].push_back({device::DeviceKind::kCpu, r * stages + s});
  }
  return grid;
}

std::vector<int> one_stage_each(int stages) {
  std::vector<int> owners(stages);
  std::iota(owners.begin(), owners.end(), 0);
  return owners;
}

pipeline::StageGrid make_toy_grid(const std::function<pipeline::LayerList()>& layers_of, const Partition& partition,
                                  int replicas, pipeline::Stage::Options options) {
  pipeline::StageGrid grid(replicas);
  for (int r = 0; r < replicas; ++r) {
    auto stages = pipeline::split(layers_of(), partition, "toy");
    int first = 0;
    for (int s = 0; s < static_cast<int>(stages.size()); ++s) {
      const pipeline::Stage* shared = r == 0 ? nullptr : grid[0][s].get();
      grid[r].push_back(std::make_unique<pipeline::Stage>(StageId{s}, std::move(stages[s]), ParamId{first},
                                                          device::Device{device::DeviceKind::kCpu, r}, shared,
                                                          options));
      first += static_cast<int>(grid[r].back()->parameters().entries().size());
    }
  }
  return grid;
}

}  // namespace sluice::test
