#include "train/study/batch_file.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "data/tensors_dataset.h"
#include "train/setup/model_options.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void reject_tensor(const fs::path& file, const char* name, const at::Tensor& tensor,
                                const std::string& needed) {
  throw DataError(file.string(), ": '", name, "' is ", tensor.sizes(), ", but ", needed);
}

// key: raises `count`; null if none does.
void check_numbers(const fs::path& file, const char* name, const at::Tensor& values, const char* what,
                   std::int64_t count, const char* key) {
  const auto low = values.min().item<std::int64_t>(), high = values.max().item<std::int64_t>();
  if (low >= 0 && high < count) return;
  throw DataError(
      file.string(), ": '", name, "' holds ", low < 0 ? low : high, ", but the model has ", count, " ", what, ", 0 to ",
      count - 1, low < 0 || key == nullptr ? "; correct the file" : concat("; set ", key, " = ", high + 1, " or more"));
}

at::Tensor as_integers(const fs::path& file, const char* name, const at::Tensor& tensor, const char* what) {
  if (!at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false)) {
    throw DataError(file.string(), ": '", name, "' is ", c10::toString(tensor.scalar_type()), ", but ", what,
                    " are integers");
  }
  return tensor.to(at::kLong);
}

pipeline::MicroBatch image_batch(const fs::path& file, const storage::TensorMap& tensors,
                                 const models::ModelOptions& model) {
  const at::Tensor targets = as_integers(file, "targets", tensors.at("targets"), "classes");
  const at::Tensor inputs = tensors.at("inputs").to(model.dtype);
  const std::vector<std::int64_t> sample{model.channels, model.image_size, model.image_size};
  if (inputs.dim() != 4 || inputs.sizes().slice(1).vec() != sample || inputs.size(0) == 0) {
    reject_tensor(file, "inputs", inputs,
                  concat("the model needs [n, ", sample[0], ", ", sample[1], ", ", sample[2],
                         "] with n > 0; set model.channels and model.image_size to those of the batch"));
  }
  if (targets.dim() != 1 || targets.size(0) != inputs.size(0))
    reject_tensor(file, "targets", targets, concat("there are ", inputs.size(0), " inputs"));
  check_numbers(file, "targets", targets, "classes", model.classes, "model.classes");
  return {{inputs}, {targets}, at::arange(inputs.size(0))};
}

// A field of a batch of texts: [n, T], or [n] if a sample has one number.
at::Tensor text_field(const fs::path& file, const at::Tensor& tensor, const models::TensorInfo& info,
                      at::IntArrayRef sizes) {
  const char* const name = info.name.c_str();
  const bool is_number = info.bound == 0;
  const at::Tensor values = is_number
                                ? tensor.to(at::kDouble)
                                : as_integers(file, name, tensor, info.name == data::kInputs ? "tokens" : "its values");
  const at::IntArrayRef needed = info.sizes.empty() ? sizes.slice(0, 1) : sizes;
  if (values.sizes() != needed) reject_tensor(file, name, tensor, concat("the inputs are ", sizes));
  return values;
}

at::Tensor text_input(const fs::path& file, const at::Tensor& tensor, const models::TensorInfo& info,
                      at::IntArrayRef sizes) {
  const at::Tensor values = text_field(file, tensor, info, sizes);
  const bool is_mask = info.lowest > 0;  // numbers of documents
  const bool are_tokens = info.name == data::kInputs;
  check_numbers(file, info.name.c_str(), values, are_tokens ? "tokens" : "values",
                is_mask ? std::numeric_limits<std::int64_t>::max() : info.bound,
                are_tokens ? "model.vocabulary" : nullptr);
  return values;
}

at::Tensor text_target(const fs::path& file, const at::Tensor& tensor, const models::TensorInfo& info, const char* key,
                       at::IntArrayRef sizes) {
  const at::Tensor values = text_field(file, tensor, info, sizes);
  if (info.bound == 0) return values;
  const at::Tensor counted = values.masked_select(values.ne(task::kNoTarget));
  if (counted.numel() == 0) {
    throw DataError(file.string(), ": every entry of '", info.name, "' is ", task::kNoTarget,
                    ", which the loss ignores; give at least one other target");
  }
  if (info.name != data::kTargets) {
    check_numbers(file, info.name.c_str(), counted, "positions", info.bound, nullptr);
  } else {
    check_numbers(file, info.name.c_str(), counted, key == std::string("model.vocabulary") ? "tokens" : "classes",
                  info.bound, key);
  }
  return values;
}

pipeline::MicroBatch text_batch(const fs::path& file, const storage::TensorMap& tensors,
                                const models::ModelOptions& model) {
  const models::Model shapes = models::make_without_values(model);
  const at::Tensor& tokens = tensors.at(data::kInputs);
  if (tokens.dim() != 2 || tokens.numel() == 0 || tokens.size(1) > model.context) {
    reject_tensor(file, data::kInputs, tokens,
                  concat("the model needs [n, T] with n > 0 and T from 1 to its context, ", model.context));
  }
  nn::Tensors inputs, targets;
  for (const models::TensorInfo& info : shapes.inputs) {
    const auto found = tensors.find(info.name);
    inputs.push_back(found == tensors.end() ? at::Tensor() : text_input(file, found->second, info, tokens.sizes()));
  }
  while (inputs.size() > 1 && !inputs.back().defined()) inputs.pop_back();
  const char* const key = shapes.classes == model.vocabulary ? "model.vocabulary" : "model.classes";
  for (const models::TensorInfo& info : shapes.targets)
    targets.push_back(text_target(file, tensors.at(info.name), info, key, tokens.sizes()));
  return {inputs, targets, at::arange(tokens.size(0))};
}

// One field, with as many entries as the fields before it have; samples: -1 before the first.
at::Tensor own_field(const fs::path& file, const storage::TensorMap& tensors, const models::TensorInfo& info,
                     std::int64_t& samples) {
  const auto found = tensors.find(info.name);
  if (found == tensors.end()) {
    if (info.is_optional) return {};
    throw DataError(file.string(), " has no tensor '", info.name, "', which the model takes; add it");
  }
  const at::Tensor& tensor = found->second;
  if (samples < 0 && tensor.dim() > 0) samples = tensor.size(0);
  if (samples < 1 || tensor.dim() == 0 || tensor.size(0) != samples)
    reject_tensor(file, info.name.c_str(), tensor,
                  concat("it needs an entry for each of ", std::max<std::int64_t>(samples, 1), " samples"));
  const std::string why = misfit(info, data::field_of(info.name, tensor));
  if (!why.empty()) throw DataError(file.string(), ": ", why);
  return tensor;
}

// For a model from a file: by the names of forward()'s arguments; a single one may also be called `inputs`.
pipeline::MicroBatch own_batch(const fs::path& file, storage::TensorMap tensors, const models::Model& model) {
  if (model.inputs.size() == 1 && tensors.contains(data::kInputs))
    tensors.emplace(model.inputs.front().name, tensors.at(data::kInputs));
  std::int64_t samples = -1;
  nn::Tensors inputs, targets;
  for (const models::TensorInfo& info : model.inputs) inputs.push_back(own_field(file, tensors, info, samples));
  const bool gives_loss = model.classes == 0;  // a model with its own loss may use other classes
  for (const models::TensorInfo& info : model.targets) {
    const at::Tensor values = own_field(file, tensors, info, samples);
    const bool are_classes = !gives_loss && info.bound > 0 && info.name == data::kTargets;
    targets.push_back(are_classes ? as_integers(file, data::kTargets, values, "classes") : values);
  }
  return {inputs, targets, at::arange(samples)};
}

}  // namespace

pipeline::MicroBatch read_batch(const fs::path& file, const models::ModelOptions& model, const task::Task& task) {
  const storage::TensorMap tensors = data::read_tensors(file);
  if (model.has_own_fields) return own_batch(file, tensors, models::make_without_values(model));
  std::vector<std::string> needed{task.inputs().front()};
  needed.insert(needed.end(), task.targets().begin(), task.targets().end());
  for (const std::string& name : needed) {
    if (!tensors.contains(name))
      throw DataError(file.string(), " has no tensor '", name, "'; a batch needs '", join(needed, "', '"), "'");
  }
  return models::kind_of(model) == SampleKind::kTokens ? text_batch(file, tensors, model)
                                                       : image_batch(file, tensors, model);
}

}  // namespace sluice::train
