#include "engine/layer_digests.h"

#include <bit>
#include <charconv>

#include <ATen/ATen.h>

#include "engine/state.h"
#include "storage/checksum.h"
#include "storage/tensor_digest.h"

namespace sluice::engine {
namespace {

constexpr std::size_t kDigits = 16;

std::int64_t as_number(const std::string& digest) {
  std::uint64_t number = 0;
  std::from_chars(digest.data(), digest.data() + kDigits, number, 16);
  return std::bit_cast<std::int64_t>(number);
}

std::string as_digest(std::int64_t number) {
  std::string digits(kDigits, '0');
  auto left = std::bit_cast<std::uint64_t>(number);
  for (std::size_t i = kDigits; i-- > 0; left >>= 4) digits[i] = "0123456789abcdef"[left & 0xf];
  return digits;
}

std::string digest_of(const at::Tensor& tensor) { return storage::digest_of_tensor(tensor).substr(0, kDigits); }

std::vector<NamedDigests> digests_of(const std::vector<std::string>& names, const storage::TensorMap& tensors) {
  std::vector<NamedDigests> all;
  for (const std::string& name : names) {
    if (const auto found = tensors.find(name); found != tensors.end())
      all.push_back({name, {digest_of(found->second)}});
  }
  return all;
}

}  // namespace

LayerDigests::LayerDigests(const Composition& composition, std::int64_t micro_batches) : composition_(composition) {
  for (int s = 0; s < composition.plan.stages(); ++s) {
    for (const auto& layer : composition.executor->stage(ReplicaId{0}, StageId{s}).layers()) {
      layers_.push_back(layer->name());
      for (const nn::Parameter* parameter : layer->parameters()) parameters_.push_back(parameter->name);
    }
  }
  for (const std::string& layer : layers_) column_of_layer_.emplace(layer, column_of_layer_.size());
  for (const std::string& parameter : parameters_)
    column_of_parameter_.emplace(parameter, layers_.size() + column_of_parameter_.size());
  const auto columns = static_cast<std::int64_t>(layers_.size() + parameters_.size());
  by_micro_batch_ = at::zeros({micro_batches, columns}, at::kLong);
}

void LayerDigests::set(std::int64_t micro_batch, std::size_t column, const std::string& digest) {
  const std::scoped_lock lock(mutex_);
  by_micro_batch_
      .mutable_data_ptr<std::int64_t>()[micro_batch * by_micro_batch_.size(1) + static_cast<std::int64_t>(column)] =
      as_number(digest);
}

void LayerDigests::on_outputs(std::int64_t micro_batch, const std::string& layer, const nn::Tensors& outputs) {
  std::string digests;
  for (const at::Tensor& output : outputs) digests += output.defined() ? storage::digest_of_tensor(output) : "-";
  set(micro_batch, column_of_layer_.at(layer), storage::digest_text(digests).xxh3_128);
}

void LayerDigests::on_gradient(std::int64_t micro_batch, const std::string& parameter, const at::Tensor& gradient) {
  set(micro_batch, column_of_parameter_.at(parameter), digest_of(gradient));
}

void LayerDigests::on_sums() {
  if (composition_.processes() > 1) composition_.sync->sum(by_micro_batch_);  // the others have zeros in these rows
  sums_ = digests_of(parameters_, gradient_tensors(composition_));
}

NamedDigests LayerDigests::column(const std::string& name, std::size_t column) const {
  NamedDigests all{name, {}};
  const at::Tensor numbers = by_micro_batch_.select(1, static_cast<std::int64_t>(column)).contiguous();
  for (std::int64_t m = 0; m < numbers.numel(); ++m)
    all.digests.push_back(as_digest(numbers.const_data_ptr<std::int64_t>()[m]));
  return all;
}

StepDigests LayerDigests::finish() const {
  StepDigests all{.sum = sums_, .update = digests_of(parameters_, parameter_tensors(composition_))};
  for (const std::string& layer : layers_) all.forward.push_back(column(layer, column_of_layer_.at(layer)));
  for (const std::string& parameter : parameters_)
    all.backward.push_back(column(parameter, column_of_parameter_.at(parameter)));
  for (const auto& [name, buffer] : buffer_tensors(composition_)) all.buffers.push_back({name, {digest_of(buffer)}});
  return all;
}

}  // namespace sluice::engine
