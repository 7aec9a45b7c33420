#include "engine/state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/concat.h"
#include "core/error.h"
#include "optim/optimizer.h"
#include "storage/not_finite.h"

namespace sluice::engine {
namespace {

using pipeline::FlatParameters;

FlatParameters& parameters_of(const Composition& composition, int replica, int stage) {
  return composition.executor->stage(ReplicaId{replica}, StageId{stage}).parameters();
}

// One copy of the frozen layers' parameters; null if no layer is frozen.
const FlatParameters* frozen_parameters(const Composition& composition) {
  const auto prefixes = composition.executor->prefixes();
  return prefixes.empty() ? nullptr : &prefixes.front()->parameters();  // the executor owns it
}

// Calls visit(stage, entry) for every parameter of the stages, in order, without copies of tied ones.
template <typename Visit>
void for_each_entry(const Composition& composition, Visit visit) {
  for (int s = 0; s < composition.plan.stages(); ++s) {
    for (const auto& entry : parameters_of(composition, 0, s).entries()) {
      if (entry.tied_to.empty()) visit(s, entry);
    }
  }
}

// Calls visit(stage, range, entry) for every updated parameter. range: its index in optim::Optimizer::updates().
template <typename Visit>
void for_each_update(const Composition& composition, Visit visit) {
  std::vector<std::size_t> ranges(composition.optimizers.size(), 0);
  for_each_entry(composition, [&](int stage, const pipeline::ParameterEntry& entry) {
    if (entry.is_trained) visit(stage, ranges[stage]++, entry);  // the order of update_ranges()
  });
}

std::string shape_of(const at::Tensor& tensor) {
  return concat(tensor.sizes(), " ", c10::toString(tensor.scalar_type()));
}

void copy_in(storage::TensorMap& remaining, const std::string& name, const at::Tensor& target,
             const std::string& source) {
  const auto found = remaining.find(name);
  if (found == remaining.end()) {
    throw CheckpointError(source, " has no tensor '", name, "'; it was made for another model");
  }
  if (found->second.sizes() != target.sizes() || found->second.is_floating_point() != target.is_floating_point()) {
    throw CheckpointError(source, ": tensor '", name, "' is ", shape_of(found->second), ", but the model needs ",
                          shape_of(target), "; use the model and options it was made with");
  }
  const at::NoGradGuard no_grad;
  target.detach().copy_(found->second);
  remaining.erase(found);
}

void copy_in_buffer(storage::TensorMap& remaining, const nn::Buffer& buffer, const std::string& source) {
  const auto found = remaining.find(buffer.name);
  const bool is_other = buffer.has_copies && found != remaining.end() &&
                        found->second.sizes() == buffer.value.sizes() &&
                        !at::equal(found->second.to(buffer.value.scalar_type()), buffer.value.cpu());
  if (is_other)
    throw CheckpointError(source, ": '", buffer.name,
                          "' has other values than in model.file, and several layers use it; ",
                          "export the model with these values");
  copy_in(remaining, buffer.name, buffer.value, source);
}

// One tensor under several names.
struct Names {
  std::string name;
  std::vector<std::string> others;
};

std::vector<Names> names_in(const Composition& composition) {
  std::vector<Names> all;
  const auto add = [&](const FlatParameters& parameters) {
    for (const auto& entry : parameters.entries()) {
      if (entry.tied_to.empty() && !entry.other_names.empty()) all.push_back({entry.name, entry.other_names});
    }
    for (const nn::Buffer* buffer : parameters.buffers()) {
      if (!buffer->other_names.empty()) all.push_back({buffer->name, buffer->other_names});
    }
  };
  if (const FlatParameters* frozen = frozen_parameters(composition)) add(*frozen);
  for (int s = 0; s < composition.plan.stages(); ++s) add(parameters_of(composition, 0, s));
  return all;
}

// A file may have such a tensor under any of its names; the result has it under the first.
storage::TensorMap under_first_names(const Composition& composition, storage::TensorMap tensors,
                                     const std::string& source) {
  for (const auto& [name, others] : names_in(composition)) {
    for (const std::string& other : others) {
      const auto copy = tensors.find(other), own = tensors.find(name);
      if (copy == tensors.end()) continue;
      if (own != tensors.end() && !at::equal(copy->second, own->second))
        throw CheckpointError(source, ": '", other, "' is not equal to '", name,
                              "', but they are one tensor of the model; use a file of a model that ties them");
      const at::Tensor value = copy->second;
      tensors.erase(copy);
      tensors.emplace(name, value);
    }
  }
  return tensors;
}

// Files of other programs may hold a tied parameter under each of its names.
void drop_copies(storage::TensorMap& remaining, const std::vector<TiedParameter>& tied, const std::string& source) {
  for (const TiedParameter& parameter : tied) {
    const auto copy = remaining.find(parameter.copy.name), owner = remaining.find(parameter.owner.name);
    if (copy == remaining.end() || owner == remaining.end()) continue;
    if (!at::equal(copy->second, owner->second)) {
      throw CheckpointError(source, ": '", parameter.copy.name, "' is not equal to '", parameter.owner.name,
                            "', to which the model ties it; use a file of a model that ties them");
    }
    remaining.erase(copy);
  }
}

void refuse_leftovers(const storage::TensorMap& remaining, const std::string& source) {
  if (remaining.empty()) return;
  throw CheckpointError(source, ": tensor '", remaining.begin()->first, "' does not belong to the model",
                        remaining.size() > 1 ? concat(" (and ", remaining.size() - 1, " more)") : std::string{},
                        "; use the model it was made with");
}

}  // namespace

void refuse_not_finite(const storage::TensorMap& tensors, const std::string& source) {
  const std::string found = storage::describe_not_finite(tensors);
  if (found.empty()) return;
  throw CheckpointError(source, ": ", found, "; use an earlier checkpoint or other weights");
}

storage::TensorMap parameter_tensors(const Composition& composition) {
  storage::TensorMap tensors;
  if (const FlatParameters* frozen = frozen_parameters(composition)) {
    for (const auto& entry : frozen->entries()) {
      if (entry.tied_to.empty()) tensors[entry.name] = FlatParameters::view(frozen->values(), entry).cpu();
    }
  }
  for_each_entry(composition, [&](int stage, const pipeline::ParameterEntry& entry) {
    tensors[entry.name] = FlatParameters::view(parameters_of(composition, 0, stage).values(), entry).cpu();
  });
  return tensors;
}

storage::TensorMap buffer_tensors(const Composition& composition) {
  storage::TensorMap tensors;
  if (const FlatParameters* frozen = frozen_parameters(composition)) {
    for (const nn::Buffer* buffer : frozen->buffers()) tensors[buffer->name] = buffer->value.cpu();
  }
  for (int s = 0; s < composition.plan.stages(); ++s) {
    for (const nn::Buffer* buffer : parameters_of(composition, 0, s).buffers())
      tensors[buffer->name] = buffer->value.cpu();
  }
  return tensors;
}

storage::TensorMap model_tensors(const Composition& composition) {
  storage::TensorMap tensors = parameter_tensors(composition);
  tensors.merge(buffer_tensors(composition));
  for (const auto& [name, others] : names_in(composition)) {
    for (const std::string& other : others) tensors[other] = tensors.at(name);
  }
  return tensors;
}

storage::TensorMap gradient_tensors(const Composition& composition) {
  storage::TensorMap tensors;
  for_each_entry(composition, [&](int stage, const pipeline::ParameterEntry& entry) {
    if (!entry.is_trained) return;
    tensors[entry.name] = FlatParameters::view(parameters_of(composition, 0, stage).gradients(), entry).cpu();
  });
  return tensors;
}

storage::TensorMap optimizer_tensors(const Composition& composition) {
  storage::TensorMap tensors(composition.frozen_optimizer.begin(), composition.frozen_optimizer.end());
  for_each_entry(composition, [&](int stage, const pipeline::ParameterEntry& entry) {
    if (!entry.is_trained) return;
    for (const auto& [name, flat] : composition.optimizers[stage]->states()) {
      const at::Tensor value = FlatParameters::view(flat, entry).cpu();
      tensors[concat(name, "/", entry.name)] = value;
      if (name != optim::kAverage) continue;  // of which a file of weights is made
      for (const std::string& other : entry.other_names) tensors[concat(name, "/", other)] = value;
    }
  });
  return tensors;
}

UpdateCounts update_counts(const Composition& composition) {
  UpdateCounts counts = composition.frozen_updates;
  std::vector<std::vector<std::int64_t>> of_stages;
  for (const auto& optimizer : composition.optimizers) of_stages.push_back(optimizer->updates());
  for_each_update(composition, [&](int stage, std::size_t range, const pipeline::ParameterEntry& entry) {
    counts[entry.name] = of_stages[stage][range];
  });
  return counts;
}

namespace {

storage::TensorMap load_frozen(const Composition& composition, const storage::TensorMap& tensors,
                               const std::string& source) {
  storage::TensorMap remaining = tensors;
  for (const auto& prefix : composition.executor->prefixes()) {
    remaining = tensors;
    const FlatParameters& parameters = prefix->parameters();
    for (const auto& entry : parameters.entries()) {
      const at::Tensor target = FlatParameters::view(parameters.values(), entry);
      if (entry.tied_to.empty()) {
        copy_in(remaining, entry.name, target, source);
      } else {
        const at::NoGradGuard no_grad;
        target.copy_(tensors.at(entry.tied_to));
      }
    }
    for (const nn::Buffer* buffer : parameters.buffers()) copy_in_buffer(remaining, *buffer, source);
  }
  return remaining;
}

void load_update_counts(Composition& composition, std::int64_t steps, const UpdateCounts& updates,
                        const std::string& source) {
  const auto count_of = [&](const std::string& parameter) {
    const auto found = updates.find(parameter);
    if (found == updates.end()) return steps;
    if (found->second < 0 || found->second > steps) {
      throw CheckpointError(source, ": parameter '", parameter, "' has had ", found->second, " updates in ", steps,
                            " steps; use another checkpoint");
    }
    return found->second;
  };
  for (auto& [parameter, count] : composition.frozen_updates) count = count_of(parameter);
  std::vector<std::vector<std::int64_t>> of_stages(composition.optimizers.size());
  for_each_update(composition, [&](int stage, std::size_t, const pipeline::ParameterEntry& entry) {
    of_stages[stage].push_back(count_of(entry.name));
  });
  for (std::size_t s = 0; s < of_stages.size(); ++s) composition.optimizers[s]->set_steps(steps, of_stages[s]);
}

}  // namespace

void load_model(Composition& composition, const storage::TensorMap& given, const std::string& source) {
  refuse_not_finite(given, source);
  const storage::TensorMap tensors = under_first_names(composition, given, source);
  const storage::TensorMap of_stages = load_frozen(composition, tensors, source);
  for (int r = 0; r < composition.plan.replicas; ++r) {
    storage::TensorMap remaining = of_stages;
    drop_copies(remaining, composition.tied, source);
    for_each_entry(composition, [&](int stage, const pipeline::ParameterEntry& entry) {
      copy_in(remaining, entry.name, FlatParameters::view(parameters_of(composition, r, stage).values(), entry),
              source);
    });
    for (int s = 0; s < composition.plan.stages(); ++s) {
      for (const nn::Buffer* buffer : parameters_of(composition, r, s).buffers())
        copy_in_buffer(remaining, *buffer, source);
    }
    refuse_leftovers(remaining, source);
    for (const TiedParameter& tied : composition.tied) {
      const at::NoGradGuard no_grad;
      FlatParameters::view(parameters_of(composition, r, index(tied.copy_stage)).values(), tied.copy)
          .copy_(tensors.at(tied.owner.name));
    }
  }
  composition.executor->wait_for_caller();
  composition.has_new_weights = true;
}

void load_optimizer(Composition& composition, const storage::TensorMap& tensors, std::int64_t steps,
                    const std::string& source, const UpdateCounts& updates) {
  refuse_not_finite(tensors, source);
  storage::TensorMap remaining = tensors;
  for (const auto& [name, tensor] : composition.frozen_optimizer) copy_in(remaining, name, tensor, source);
  for_each_entry(composition, [&](int stage, const pipeline::ParameterEntry& entry) {
    for (const auto& [name, flat] : composition.optimizers[stage]->states()) {
      const std::string tensor = concat(name, "/", entry.name);
      if (entry.is_trained) copy_in(remaining, tensor, FlatParameters::view(flat, entry), source);
      if (!entry.is_trained) remaining.erase(tensor);  // from when the parameter was trained
      for (const std::string& other : entry.other_names) remaining.erase(concat(name, "/", other));
    }
  });
  refuse_leftovers(remaining, source);
  load_update_counts(composition, steps, updates, source);
  composition.executor->wait_for_caller();
}

BufferSnapshot::BufferSnapshot(const Composition& composition, Replicas replicas) : composition_(composition) {
  const at::NoGradGuard no_grad;
  const int count = replicas == Replicas::kAll ? composition.plan.replicas : 1;
  for (int r = 0; r < count; ++r) {
    for (int s = 0; s < composition.plan.stages(); ++s) {
      const FlatParameters& parameters = parameters_of(composition, r, s);
      OfStage stage;
      stage.replica = r;
      std::vector<at::Tensor> counts;
      for (const nn::Buffer* buffer : parameters.buffers()) {
        stage.buffers.push_back(buffer);
        if (!buffer->value.is_floating_point()) counts.push_back(buffer->value.flatten());
      }
      if (stage.buffers.size() > counts.size()) stage.statistics = parameters.running_statistics().clone();
      if (!counts.empty()) stage.counts = at::cat(counts);
      if (!stage.buffers.empty()) stages_.push_back(std::move(stage));
    }
  }
  if (!stages_.empty()) composition.executor->wait_for_caller();
}

template <typename Visit>
void BufferSnapshot::for_each(const OfStage& stage, Visit visit) {
  std::int64_t statistics_begin = 0, counts_begin = 0;
  for (const nn::Buffer* buffer : stage.buffers) {
    const bool is_count = !buffer->value.is_floating_point();
    std::int64_t& begin = is_count ? counts_begin : statistics_begin;
    const std::int64_t size = buffer->value.numel();
    visit(*buffer, (is_count ? stage.counts : stage.statistics).narrow(0, begin, size).view(buffer->value.sizes()));
    begin += size;
  }
}

void BufferSnapshot::restore() const {
  const at::NoGradGuard no_grad;
  for (const OfStage& stage : stages_)
    for_each(stage, [](const nn::Buffer& live, const at::Tensor& copy) { live.value.copy_(copy); });
  composition_.executor->wait_for_caller();
}

void BufferSnapshot::put_into(storage::TensorMap& model) const {
  for (const OfStage& stage : stages_) {
    if (stage.replica != 0) continue;
    for_each(stage, [&](const nn::Buffer& live, const at::Tensor& copy) { model.at(live.name) = copy.cpu(); });
  }
}

}  // namespace sluice::engine
