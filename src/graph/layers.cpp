#include "graph/layers.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
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

class GraphLayer final : public nn::Layer {
 public:
  // owned: names of the state that earlier layers have; this one adds its own.
  GraphLayer(ArchivePtr archive, Section section, const nn::LayerOptions& options, std::set<std::string>& owned)
      : Layer(section.name),
        archive_(std::move(archive)),
        section_(std::move(section)),
        type_(options.dtype),
        from_(floating_type_of(*archive_)),
        training_(archive_->program, section_, {Mode::kTraining, from_, type_}),
        evaluation_(archive_->program, section_, {Mode::kEvaluation, from_, type_}) {
    for (const int state : section_.states) add_state(archive_->program.inputs[state], options, owned);
  }

  [[nodiscard]] nn::Tensors forward_all(const nn::Tensors& inputs, const nn::ForwardContext& context) override {
    nn::Tensors states;
    for (const auto& state : states_) states.push_back(state());
    return (context.training ? training_ : evaluation_).run(states, inputs, context);
  }

  [[nodiscard]] std::vector<nn::Parameter*> parameters() override { return pointers_to(parameters_); }
  [[nodiscard]] std::vector<nn::Buffer*> buffers() override { return pointers_to(buffers_); }

  // A part of the state that no node takes is kept for the checkpoint.
  void keep(const std::string& name, const at::Tensor& value) {
    buffers_.push_back(std::make_unique<nn::Buffer>(nn::Buffer{name, value.clone()}));
  }

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

  void add_state(const Input& input, const nn::LayerOptions& options, std::set<std::string>& owned) {
    const SavedTensor& saved = (input.is_saved ? archive_->state : archive_->constants).at(input.name);
    if (input.kind == InputKind::kParameter) {
      add_parameter(input, saved, options, owned);
    } else if (input.is_saved && owned.insert(input.name).second) {
      nn::Buffer& buffer =
          *buffers_.emplace_back(std::make_unique<nn::Buffer>(nn::Buffer{input.name, in_own_type(saved.value)}));
      states_.emplace_back([&buffer] { return buffer.value; });
    } else {
      states_.emplace_back([value = in_own_type(saved.value)] { return value; });
    }
  }

  void add_parameter(const Input& input, const SavedTensor& saved, const nn::LayerOptions& options,
                     std::set<std::string>& owned) {
    const bool is_new = owned.insert(saved.owner).second;
    nn::Parameter& parameter = *parameters_.emplace_back(std::make_unique<nn::Parameter>());
    parameter.name = is_new ? saved.owner : concat(saved.owner, "@", name());
    if (!is_new) parameter.tied_to = saved.owner;
    parameter.role = role_of(input.name, first_user(input.value));
    const at::ScalarType type = saved.value.scalar_type() == from_ ? type_ : saved.value.scalar_type();
    parameter.value = options.draw_weights ? in_own_type(saved.value)
                                           : at::empty_strided(saved.value.sizes(), saved.value.strides(),
                                                               at::TensorOptions().dtype(type).device(at::kMeta));
    parameter.value.requires_grad_(saved.requires_grad);
    states_.emplace_back([&parameter] { return parameter.value; });
  }

  [[nodiscard]] const Node* first_user(ValueId value) const {
    for (const int n : section_.nodes) {
      bool uses = false;
      for_each_use(archive_->program.nodes[n], [&](ValueId used) { uses = uses || used == value; });
      if (uses) return &archive_->program.nodes[n];
    }
    return nullptr;
  }

  const ArchivePtr archive_;
  const Section section_;
  const at::ScalarType type_, from_;
  const Instructions training_, evaluation_;
  std::vector<std::unique_ptr<nn::Parameter>> parameters_;
  std::vector<std::unique_ptr<nn::Buffer>> buffers_;
  std::vector<std::function<at::Tensor()>> states_;  // in the order of Section::states
};

}  // namespace

std::vector<std::unique_ptr<nn::Layer>> make_layers(const ArchivePtr& archive, std::vector<Section> sections,
                                                    const nn::LayerOptions& options) {
  for (const Input& input : archive->program.inputs) {
    if (input.kind == InputKind::kUser) continue;
    const auto& tensors = input.is_saved ? archive->state : archive->constants;
    if (!tensors.contains(input.name))
      throw CheckpointError("the exported file has no tensor ", input.name, "; export the model again");
  }
  std::set<std::string> owned;
  std::vector<std::unique_ptr<nn::Layer>> layers;
  for (Section& section : sections)
    layers.push_back(std::make_unique<GraphLayer>(archive, std::move(section), options, owned));
  return layers;
}

}  // namespace sluice::graph
