#include "graph/layers.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "graph/arguments.h"
#include "graph/instructions.h"
#include "graph/scalar_type.h"

namespace sluice::graph {
namespace {

at::ScalarType floating_type_of(const Archive& archive) {
  for (const Input& input : archive.program.inputs) {
    if (input.kind != InputKind::kParameter) continue;
    const at::ScalarType type = archive.state.at(input.name).value.scalar_type();
    if (at::isFloatingType(type)) return type;
  }
  return at::kFloat;
}

nn::ParameterRole role_of(const std::string& name, const Node* user) {
  if (user != nullptr && user->module_class.find("Norm") != std::string::npos) return nn::ParameterRole::kNorm;
  if (name.ends_with("bias")) return nn::ParameterRole::kBias;
  return name.find("position") != std::string::npos ? nn::ParameterRole::kPosition : nn::ParameterRole::kWeight;
}

// A program's section, and where its tensors are.
class RunnableSection {
 public:
  RunnableSection(const Program& program, const Section& section, const InstructionOptions& options)
      : program_(program), section_(section), instructions_(program, section, options) {}

  [[nodiscard]] std::vector<const Input*> states() const {
    std::vector<const Input*> inputs;
    for (const int state : section_.states) inputs.push_back(&program_.inputs[state]);
    return inputs;
  }
  void add_state(std::function<at::Tensor()> state) { states_.push_back(std::move(state)); }

  [[nodiscard]] nn::Tensors run(const nn::Tensors& inputs, const nn::ForwardContext& context) const {
    nn::Tensors states;
    for (const auto& state : states_) states.push_back(state());
    return instructions_.run(states, inputs, context);
  }

  [[nodiscard]] const Node* first_user(ValueId value) const {
    for (const int n : section_.nodes) {
      bool uses = false;
      for_each_use(program_.nodes[n], [&](ValueId used) { uses = uses || used == value; });
      if (uses) return &program_.nodes[n];
    }
    return nullptr;
  }

 private:
  const Program& program_;
  const Section section_;
  const Instructions instructions_;
  std::vector<std::function<at::Tensor()>> states_;  // in the order of Section::states
};

struct Part {
  const Program& program;
  const std::vector<Section>& sections;
  Mode mode;
};

class GraphLayer final : public nn::Layer {
 public:
  // owned: names of the state that earlier layers have; this one adds its own.
  GraphLayer(ArchivePtr archive, const Part& training, const Part& evaluation, std::size_t number,
             const nn::LayerOptions& options, std::set<std::string>& owned)
      : Layer(training.sections[number].name),
        archive_(std::move(archive)),
        type_(options.dtype),
        from_(floating_type_of(*archive_)),
        arguments_(number == 0 ? std::make_unique<Arguments>(archive_->program, from_, type_) : nullptr),
        training_(training.program, training.sections[number], {training.mode, from_, type_}),
        evaluation_(evaluation.program, evaluation.sections[number], {evaluation.mode, from_, type_}) {
    for (RunnableSection* section : {&training_, &evaluation_}) {
      for (const Input* input : section->states()) section->add_state(state_of(*input, *section, options, owned));
    }
  }

  [[nodiscard]] nn::Tensors forward_all(const nn::Tensors& inputs, const nn::ForwardContext& context) override {
    const nn::Tensors& taken = arguments_ ? arguments_->complete(inputs) : inputs;
    return (context.training ? training_ : evaluation_).run(taken, context);
  }

  [[nodiscard]] std::vector<nn::Parameter*> parameters() override { return pointers_to(parameters_); }
  [[nodiscard]] std::vector<nn::Buffer*> buffers() override { return pointers_to(buffers_); }

 private:
  template <typename T>
  static std::vector<T*> pointers_to(const std::vector<std::unique_ptr<T>>& owned) {
    std::vector<T*> pointers;
    for (const auto& one : owned) pointers.push_back(one.get());
    return pointers;
  }

  [[nodiscard]] at::Tensor in_own_type(const at::Tensor& value) const {
    return value.scalar_type() == from_ ? value.to(type_, /*non_blocking=*/false, /*copy=*/true) : value.clone();
  }

  using State = std::function<at::Tensor()>;

  // Training and evaluation share the tensors.
  State state_of(const Input& input, const RunnableSection& section, const nn::LayerOptions& options,
                 std::set<std::string>& owned) {
    const SavedTensor& saved = (input.is_saved ? archive_->state : archive_->constants).at(input.name);
    const std::string& name = input.is_saved ? saved.owner : input.name;
    if (const auto known = states_.find(name); known != states_.end()) return known->second;
    State state;
    if (input.kind == InputKind::kParameter) {
      state = add_parameter(saved, section.first_user(input.value), options, owned);
    } else if (input.is_saved && owned.insert(name).second) {
      nn::Buffer& buffer =
          *buffers_.emplace_back(std::make_unique<nn::Buffer>(nn::Buffer{name, in_own_type(saved.value)}));
      state = [&buffer] { return buffer.value; };
    } else {
      state = [value = in_own_type(saved.value)] { return value; };
    }
    return states_.emplace(name, std::move(state)).first->second;
  }

  State add_parameter(const SavedTensor& saved, const Node* user, const nn::LayerOptions& options,
                      std::set<std::string>& owned) {
    const bool is_new = owned.insert(saved.owner).second;
    nn::Parameter& parameter = *parameters_.emplace_back(std::make_unique<nn::Parameter>());
    parameter.name = is_new ? saved.owner : concat(saved.owner, "@", name());
    if (!is_new) parameter.tied_to = saved.owner;
    parameter.role = role_of(saved.owner, user);
    const at::ScalarType type = saved.value.scalar_type() == from_ ? type_ : saved.value.scalar_type();
    parameter.value = options.draw_weights ? in_own_type(saved.value)
                                           : at::empty_strided(saved.value.sizes(), saved.value.strides(),
                                                               at::TensorOptions().dtype(type).device(at::kMeta));
    parameter.value.requires_grad_(saved.requires_grad);
    return [&parameter] { return parameter.value; };
  }

  const ArchivePtr archive_;
  const at::ScalarType type_, from_;
  const std::unique_ptr<const Arguments> arguments_;  // of the first layer
  RunnableSection training_, evaluation_;
  std::vector<std::unique_ptr<nn::Parameter>> parameters_;
  std::vector<std::unique_ptr<nn::Buffer>> buffers_;
  std::map<std::string, State> states_;  // by name
};

void check_state(const Archive& archive, const Program& program) {
  for (const Input& input : program.inputs) {
    const auto& tensors = input.is_saved ? archive.state : archive.constants;
    if (input.kind != InputKind::kUser && !tensors.contains(input.name))
      throw CheckpointError("the exported file has no tensor ", printable(input.name), "; export the model again");
  }
}

std::vector<std::unique_ptr<nn::Layer>> layers_of(const ArchivePtr& archive, const Part& training,
                                                  const Part& evaluation, const nn::LayerOptions& options) {
  std::set<std::string> owned;
  std::vector<std::unique_ptr<nn::Layer>> layers;
  for (std::size_t s = 0; s < training.sections.size(); ++s)
    layers.push_back(std::make_unique<GraphLayer>(archive, training, evaluation, s, options, owned));
  return layers;
}

}  // namespace

std::vector<std::unique_ptr<nn::Layer>> make_layers(const ArchivePtr& archive, const nn::LayerOptions& options) {
  const Program& program = archive->program;
  const Program& evaluation = archive->evaluation ? *archive->evaluation : program;
  check_state(*archive, program);
  check_state(*archive, evaluation);
  const std::vector<int> cuts = find_cuts(program);
  const std::vector<Section> sections = cut_into_sections(program, cuts), others = cut_into_sections(evaluation, cuts);
  return layers_of(archive, {program, sections, Mode::kTraining}, {evaluation, others, Mode::kEvaluation}, options);
}

std::vector<std::unique_ptr<nn::Layer>> make_layers(const ArchivePtr& archive, const std::vector<Section>& sections,
                                                    const nn::LayerOptions& options) {
  check_state(*archive, archive->program);
  const Part part{archive->program, sections, Mode::kTraining};
  return layers_of(archive, part, part, options);
}

}  // namespace sluice::graph
