#include "graph/layers.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "graph/arguments.h"
#include "graph/instructions.h"
#include "graph/patterns.h"

namespace sluice::graph {
namespace {

nn::ParameterRole role_of(const std::string& name, const Node* user) {
  if (user != nullptr && user->module_class.find("Norm") != std::string::npos) return nn::ParameterRole::kNorm;
  if (name.ends_with("bias")) return nn::ParameterRole::kBias;
  return name.find("position") != std::string::npos ? nn::ParameterRole::kPosition : nn::ParameterRole::kWeight;
}

using State = std::function<at::Tensor(const at::Device&)>;

// Runs operators in bfloat16 as torch.autocast does.
class Autocast {
 public:
  Autocast(bool is_wanted, at::DeviceType device) : device_(device), is_wanted_(is_wanted) {
    if (!is_wanted) return;
    was_enabled_ = at::autocast::is_autocast_enabled(device);
    had_type_ = at::autocast::get_autocast_dtype(device);
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::set_autocast_dtype(device, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (!is_wanted_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, had_type_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const at::DeviceType device_;
  const bool is_wanted_;
  bool was_enabled_ = false;
  at::ScalarType had_type_ = at::kBFloat16;
};

// A section of a program that runs, with its states.
class RunnableSection {
 public:
  RunnableSection(const Program& program, const Section& section, const InstructionOptions& options,
                  std::vector<State> states, bool in_bf16)
      : instructions_(program, section, options), states_(std::move(states)), in_bf16_(in_bf16) {}

  [[nodiscard]] nn::Tensors run(const nn::Tensors& inputs, const nn::ForwardContext& context) const {
    const at::Device device = device_of(inputs).value_or(at::kCPU);
    nn::Tensors states;
    for (const State& state : states_) states.push_back(state(device));
    const Autocast autocast(in_bf16_, device.type());
    return instructions_.run(states, inputs, context);
  }

  [[nodiscard]] std::map<std::string, int> calls() const { return instructions_.calls(); }

 private:
  const Instructions instructions_;
  const std::vector<State> states_;  // in the order of Section::states
  const bool in_bf16_;
};

struct CutProgram {
  const Program& program;
  const std::vector<Section>& sections;
  Mode mode;
  bool has_patterns = true;  // false: every node runs as it is
  Aliases aliases = find_aliases(program);
  std::vector<bool> order_is_seen = seen_orders(program, aliases);
};

const Node* first_user(const Program& program, const Section& section, ValueId value) {
  for (const int n : section.nodes) {
    bool uses = false;
    for_each_use(program.nodes[n], [&](ValueId used) { uses = uses || used == value; });
    if (uses) return &program.nodes[n];
  }
  return nullptr;
}

// State by its names.
struct Owned {
  std::set<std::string> names;
  std::map<std::string, nn::Buffer*> buffers;
  std::set<std::string> trained;  // parameters that the loss or the logits depend on
};

class GraphLayer final : public nn::Layer {
 public:
  // owned: the state that earlier layers have; this one adds its own.
  GraphLayer(ArchivePtr archive, const CutProgram& training, const CutProgram& evaluation, std::size_t number,
             const nn::LayerOptions& options, Owned& owned)
      : Layer(training.sections[number].name),
        archive_(std::move(archive)),
        options_(options),
        from_(floating_type_of(*archive_)),
        has_patterns_(training.has_patterns),
        arguments_(number == 0 ? std::make_unique<Arguments>(archive_->program, from_, options.dtype) : nullptr),
        training_(section_of(training, number, owned)),
        evaluation_(section_of(evaluation, number, owned)) {}

  [[nodiscard]] nn::Tensors forward_all(const nn::Tensors& inputs, const nn::ForwardContext& context) override {
    const RunnableSection& section = context.training ? *training_ : *evaluation_;
    return section.run(arguments_ ? arguments_->complete(inputs) : inputs, context);
  }

  // Adds tensors that no node uses, so that checkpoints have them.
  void add_unused(const Owned& owned) {
    for (const auto& [name, tensor] : archive_->state) {
      if (tensor.owner == name && !owned.names.contains(name))
        buffers_.push_back(
            std::make_unique<nn::Buffer>(nn::Buffer{name, in_own_type(tensor.value).detach(), other_names_of(name)}));
    }
  }

  [[nodiscard]] std::vector<nn::Parameter*> parameters() override { return pointers_to(parameters_); }
  [[nodiscard]] std::vector<nn::Buffer*> buffers() override { return pointers_to(buffers_); }
  [[nodiscard]] std::vector<nn::BatchNorm2d*> batch_norms() override { return norm_calls_; }
  [[nodiscard]] std::map<std::string, int> calls() const override { return training_->calls(); }

 private:
  template <typename T>
  static std::vector<T*> pointers_to(const std::vector<std::unique_ptr<T>>& owned) {
    std::vector<T*> pointers;
    for (const auto& one : owned) pointers.push_back(one.get());
    return pointers;
  }

  [[nodiscard]] std::unique_ptr<const RunnableSection> section_of(const CutProgram& part, std::size_t number,
                                                                  Owned& owned) {
    const Section& section = part.sections[number];
    std::vector<State> states;
    for (const int state : section.states) {
      const Input& input = part.program.inputs[state];
      states.push_back(state_of(input, first_user(part.program, section, input.value), owned));
    }
    InstructionOptions options{.mode = part.mode, .from = from_, .to = options_.dtype};
    options.order_is_seen = &part.order_is_seen;
    if (part.has_patterns)
      options.patterns = find_patterns(part.program, part.aliases, section, pattern_options(part.mode));
    for (const Pattern& pattern : options.patterns) {
      if (pattern.norm != nullptr) norm_calls_.push_back(pattern.norm);
    }
    return std::make_unique<const RunnableSection>(part.program, section, options, std::move(states), options_.in_bf16);
  }

  [[nodiscard]] PatternOptions pattern_options(Mode mode) {
    return {.is_training = mode == Mode::kTraining,
            .activations = options_.in_bf16 ? at::kBFloat16 : options_.dtype,
            .is_trained = [this](const Input& input) { return saved(input).requires_grad; },
            .make_norm = [this](const auto& inputs, const auto& numbers) { return make_norm(inputs, numbers); }};
  }

  nn::BatchNorm2d* make_norm(const PatternOptions::NormInputs& inputs, const nn::BatchNormNumbers& numbers) {
    const auto find = [&](const auto& all, const Input* input) {
      using Pointer = decltype(all.front().get());
      if (input == nullptr) return Pointer(nullptr);
      const auto is_named = [&](const auto& one) { return one->name == name_here(*input); };
      const auto found = std::ranges::find_if(all, is_named);
      check(found != all.end(), "state of a batch norm in its layer");
      return found->get();
    };
    const nn::BatchNormState state{find(parameters_, inputs.weight), find(parameters_, inputs.bias),
                                   find(buffers_, inputs.mean), find(buffers_, inputs.variance),
                                   find(buffers_, inputs.count)};
    return norms_.emplace_back(std::make_unique<nn::BatchNorm2d>(state, numbers)).get();
  }

  [[nodiscard]] const SavedTensor& saved(const Input& input) const {
    return (input.is_saved ? archive_->state : archive_->constants).at(input.name);
  }
  // The name of the input's parameter or buffer in this layer.
  [[nodiscard]] std::string name_here(const Input& input) const {
    const std::string& owner = saved(input).owner;
    const auto copy = copies_.find(owner);
    return copy == copies_.end() ? owner : copy->second;
  }

  [[nodiscard]] at::ScalarType own_type_of(const at::Tensor& value) const {
    return value.scalar_type() == from_ ? options_.dtype : value.scalar_type();
  }
  [[nodiscard]] at::MemoryFormat layout_of(const at::Tensor& value) const {
    const bool is_of_convolution = has_patterns_ && value.dim() == 4;
    return is_of_convolution ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Preserve;
  }
  [[nodiscard]] at::Tensor in_own_type(const at::Tensor& value) const {
    return value.to(own_type_of(value), /*non_blocking=*/false, /*copy=*/true, layout_of(value));
  }
  [[nodiscard]] at::Tensor without_values(const at::Tensor& value) const {
    return at::empty_like(value, at::TensorOptions().dtype(own_type_of(value)).device(at::kMeta), layout_of(value));
  }

  // Training and evaluation share the tensors.
  State state_of(const Input& input, const Node* user, Owned& owned) {
    const SavedTensor& tensor = saved(input);
    const std::string& name = input.is_saved ? tensor.owner : input.name;
    if (const auto known = states_.find(name); known != states_.end()) return known->second;
    State state;
    if (input.kind == InputKind::kParameter) {
      state = add_parameter(tensor, user, owned);
    } else if (input.is_saved && owned.names.insert(name).second) {
      nn::Buffer& buffer =
          *buffers_.emplace_back(std::make_unique<nn::Buffer>(nn::Buffer{name, in_own_type(tensor.value)}));
      buffer.other_names = other_names_of(name);
      owned.buffers[name] = &buffer;
      // Buffers of a stage share one memory; autograd must not take a write to one for a write to another.
      state = [&buffer](const at::Device&) { return buffer.value.variable_data(); };
    } else {
      if (input.is_saved) owned.buffers.at(name)->has_copies = true;
      state = constant(in_own_type(tensor.value));
    }
    return states_.emplace(name, std::move(state)).first->second;
  }

  [[nodiscard]] std::vector<std::string> other_names_of(const std::string& owner) const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : archive_->state) {
      if (tensor.owner == owner && name != owner) names.push_back(name);
    }
    return names;
  }

  // Moved once to the device that the layer runs on.
  static State constant(const at::Tensor& value) {
    return [held = std::make_shared<at::Tensor>(value)](const at::Device& device) {
      if (held->device() != device) *held = held->to(device);
      return *held;
    };
  }

  State add_parameter(const SavedTensor& tensor, const Node* user, Owned& owned) {
    const bool is_new = owned.names.insert(tensor.owner).second;
    nn::Parameter& parameter = *parameters_.emplace_back(std::make_unique<nn::Parameter>());
    parameter.name = is_new ? tensor.owner : concat(tensor.owner, "@", name());
    if (is_new) {
      parameter.other_names = other_names_of(tensor.owner);
    } else {
      parameter.tied_to = tensor.owner;
      copies_[tensor.owner] = parameter.name;
    }
    parameter.role = role_of(tensor.owner, user);
    parameter.value = options_.draw_weights ? in_own_type(tensor.value) : without_values(tensor.value);
    parameter.value.requires_grad_(tensor.requires_grad && owned.trained.contains(tensor.owner));
    return [&parameter](const at::Device&) { return parameter.value; };
  }

  const ArchivePtr archive_;
  const nn::LayerOptions options_;
  const at::ScalarType from_;
  const bool has_patterns_;
  const std::unique_ptr<const Arguments> arguments_;  // of the first layer
  std::vector<std::unique_ptr<nn::Parameter>> parameters_;
  std::vector<std::unique_ptr<nn::Buffer>> buffers_;
  std::vector<std::unique_ptr<nn::BatchNorm2d>> norms_;
  std::vector<nn::BatchNorm2d*> norm_calls_;   // in the order in which they run
  std::map<std::string, std::string> copies_;  // of tied parameters: by the owner's name
  std::map<std::string, State> states_;        // by name
  const std::unique_ptr<const RunnableSection> training_, evaluation_;
};

std::vector<std::unique_ptr<nn::Layer>> layers_of(const ArchivePtr& archive, const CutProgram& training,
                                                  const CutProgram& evaluation, const nn::LayerOptions& options) {
  Owned owned;
  for (const int input : differentiated_inputs(training.program, training.aliases)) {
    const Input& parameter = training.program.inputs[input];
    if (parameter.kind == InputKind::kParameter) owned.trained.insert(archive->state.at(parameter.name).owner);
  }
  std::vector<std::unique_ptr<nn::Layer>> layers;
  for (std::size_t s = 0; s < training.sections.size(); ++s) {
    auto layer = std::make_unique<GraphLayer>(archive, training, evaluation, s, options, owned);
    if (s + 1 == training.sections.size()) layer->add_unused(owned);
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace

at::ScalarType floating_type_of(const Archive& archive) {
  for (const Input& input : archive.program.inputs) {
    if (input.kind != InputKind::kParameter) continue;
    const at::ScalarType type = archive.state.at(input.name).value.scalar_type();
    if (at::isFloatingType(type)) return type;
  }
  return at::kFloat;
}

std::vector<std::unique_ptr<nn::Layer>> make_layers(const ArchivePtr& archive, const nn::LayerOptions& options) {
  const Program& program = archive->program;
  const Program& evaluation = archive->evaluation ? *archive->evaluation : program;
  const CommonSections sections = cut_both(program, evaluation);
  return layers_of(archive, {program, sections.training, Mode::kTraining},
                   {evaluation, sections.evaluation, Mode::kEvaluation}, options);
}

std::vector<std::unique_ptr<nn::Layer>> make_layers(const ArchivePtr& archive, const std::vector<Section>& sections,
                                                    const nn::LayerOptions& options) {
  const CutProgram part{archive->program, sections, Mode::kTraining, /*has_patterns=*/false};
  return layers_of(archive, part, part, options);
}

}  // namespace sluice::graph
