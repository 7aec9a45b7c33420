#include "models/foreign_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::models {
namespace {

constexpr const char* kPositions = "vit.embeddings.position_embeddings";
constexpr const char* kCounter = ".num_batches_tracked";

NamedTensors tensors_of(const ModelOptions& options) {
  const Model model = make_without_values(options);
  NamedTensors tensors;
  for (const auto& layer : model.layers) {
    for (const nn::Parameter* parameter : layer->parameters()) tensors[parameter->name] = parameter->value;
    for (const nn::Buffer* buffer : layer->buffers()) tensors[buffer->name] = buffer->value;
  }
  return tensors;
}

// Key of the table of names.
std::string table_of(const ModelOptions& model) {
  return is_text(model) ? name_of(text_config(model).type) : model.name;
}

// What files of text models have besides, for another task.
bool is_of_other_head(const std::string& name) {
  constexpr std::array kHeads{"bert.pooler.",    "cls.",   "classifier.",      "qa_outputs.",       "lm_head.",
                              "pre_classifier.", "score.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector."};
  return std::ranges::any_of(kHeads, [&](const char* head) { return name.starts_with(head); });
}

std::optional<std::vector<std::string>> own_names(NamesOf source, const std::string& model, const std::string& name) {
  if (source == NamesOf::kOurs) return std::vector{name};
  return our_names(source, model, name);
}

// Counts the file's names that `source` uses for tensors of the model or that our models do not need.
std::int64_t count_known(NamesOf source, const std::string& model, const NamedTensors& file, const NamedTensors& ours) {
  return std::ranges::count_if(file, [&](const auto& entry) {
    const auto names = own_names(source, model, entry.first);
    return names && std::ranges::all_of(*names, [&](const std::string& name) { return ours.contains(name); });
  });
}

[[noreturn]] void refuse_file(const std::string& source, const ModelOptions& model, const NamedTensors& file) {
  const Model made = make_without_values(model);
  std::vector<std::string> libraries;
  for (const NamesOf names : foreign_sources(table_of(model))) libraries.push_back(in_words(names));
  const std::string others = libraries.empty() ? "" : concat(", nor any under ", join(libraries, ", "), " names");
  throw CheckpointError(source, " has no tensor '", made.layers.front()->parameters().front()->name,
                        "' or any other of ", model.name, others, "; its first is '", file.begin()->first,
                        "', so it is the file of another model; choose the model of these weights");
}

NamesOf choose_names(const std::string& source, const ModelOptions& model, const NamedTensors& file,
                     const NamedTensors& ours) {
  NamesOf best = NamesOf::kOurs;
  const std::string table = table_of(model);
  std::int64_t most = count_known(best, table, file, ours);
  for (const NamesOf names : foreign_sources(table)) {
    const std::int64_t known = count_known(names, table, file, ours);
    if (known > most) best = names, most = known;
  }
  if (most == 0 && !file.empty() && !ours.empty()) refuse_file(source, model, file);
  return best;
}

class Renaming {
 public:
  Renaming(const std::string& source, const NamedTensors& ours, ForeignWeights& result)
      : source_(source), ours_(ours), result_(result) {}

  void take(const std::string& foreign, const at::Tensor& tensor, const std::vector<std::string>& names) {
    if (names.empty()) result_.left_out[foreign] = tensor;
    if (names.size() == 1) add(foreign, names[0], tensor);
    if (names.size() > 1) take_apart(foreign, tensor, names);
  }

 private:
  void take_apart(const std::string& foreign, const at::Tensor& tensor, const std::vector<std::string>& names) {
    const auto parts = static_cast<std::int64_t>(names.size());
    if (tensor.dim() == 0 || tensor.size(0) % parts != 0) {
      throw CheckpointError(source_, ": tensor '", foreign, "' is ", tensor.sizes(), ", which cannot be split into ",
                            parts, " tensors: '", names[0], "' and so on");
    }
    const std::int64_t rows = tensor.size(0) / parts;
    for (std::int64_t i = 0; i < parts; ++i) add(foreign, names[i], tensor.narrow(0, i * rows, rows));
  }

  void add(const std::string& foreign, const std::string& name, const at::Tensor& tensor) {
    if (!result_.tensors.emplace(name, in_our_shape(name, tensor)).second)
      throw CheckpointError(source_, " has '", name, "' twice, once as '", foreign, "'");
  }

  // Reshapes a convolution over all pixels to a matrix, and a scale of [width] to [width, 1, 1].
  [[nodiscard]] at::Tensor in_our_shape(const std::string& name, const at::Tensor& tensor) const {
    const auto own = ours_.find(name);
    if (result_.names == NamesOf::kOurs || own == ours_.end() || tensor.dim() == own->second.dim() ||
        tensor.dim() == 0 || own->second.dim() == 0 || tensor.numel() != own->second.numel() ||
        tensor.size(0) != own->second.size(0))
      return tensor;
    return tensor.reshape(own->second.sizes());
  }

  const std::string& source_;
  const NamedTensors& ours_;
  ForeignWeights& result_;
};

// Returns the grid size of position embeddings [1, 1 + side^2, width]; nothing for other shapes.
std::optional<std::int64_t> side_of(const at::Tensor& positions) {
  if (positions.dim() != 3 || positions.size(0) != 1 || !positions.is_floating_point()) return std::nullopt;
  const auto side = std::llround(std::sqrt(std::max<double>(0, static_cast<double>(positions.size(1) - 1))));
  if (side < 1 || side * side + 1 != positions.size(1)) return std::nullopt;
  return side;
}

at::Tensor resize(const at::Tensor& grid, std::int64_t side, NamesOf names) {
  const std::array<std::int64_t, 2> size{side, side};
  switch (names) {
    case NamesOf::kTimm: return at::_upsample_bicubic2d_aa(grid, size, /*align_corners=*/false);
    case NamesOf::kTorchvision: return at::upsample_bicubic2d(grid, size, /*align_corners=*/true);
    case NamesOf::kOurs:
    case NamesOf::kHuggingFace: break;
  }
  return at::upsample_bicubic2d(grid, size, /*align_corners=*/false);
}

// Interpolates the patch positions and keeps the class token's. Computes half precision in float32.
at::Tensor interpolated(const at::Tensor& positions, std::int64_t from, std::int64_t side, NamesOf names) {
  const at::ScalarType exact = positions.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const std::int64_t width = positions.size(2);
  const at::Tensor grid =
      positions.narrow(1, 1, from * from).to(exact).reshape({1, from, from, width}).permute({0, 3, 1, 2}).contiguous();
  const at::Tensor patches = resize(grid, side, names).permute({0, 2, 3, 1}).reshape({1, side * side, width});
  return at::cat({positions.narrow(1, 0, 1).to(exact), patches}, 1);
}

void fit_positions(const NamedTensors& ours, ForeignWeights& result) {
  const auto own = ours.find(kPositions);
  const auto found = result.tensors.find(kPositions);
  if (own == ours.end() || found == result.tensors.end()) return;
  const auto from = side_of(found->second), side = side_of(own->second);
  if (!from || !side || *from == *side || found->second.size(2) != own->second.size(2)) return;
  found->second = interpolated(found->second, *from, *side, result.names);
  result.interpolated = concat(kPositions, " from ", *from, " x ", *from, " to ", *side, " x ", *side, " patches");
}

// Adds counters only if all are missing: a file with only some is damaged.
void add_counters(const NamedTensors& ours, ForeignWeights& result) {
  const auto is_counter = [](const auto& entry) { return entry.first.ends_with(kCounter); };
  if (std::ranges::any_of(result.tensors, is_counter)) return;
  for (const auto& entry : ours) {
    if (!is_counter(entry) || !result.tensors.contains(entry.first.substr(0, entry.first.rfind('.')) + ".weight")) {
      continue;
    }
    result.tensors[entry.first] = at::zeros({}, at::kLong);
    ++result.new_counters;
  }
}

}  // namespace

ForeignWeights to_our_names(const ModelOptions& model, NamedTensors file, const std::string& source) {
  const NamedTensors ours = tensors_of(model);
  ForeignWeights result{.names = choose_names(source, model, file, ours)};
  Renaming renaming(source, ours, result);
  const std::string table = table_of(model);
  for (const auto& [name, tensor] : file) {
    auto names = own_names(result.names, table, name).value_or(std::vector{name});
    if (is_text(model) && !names.empty() && !ours.contains(names[0]) && is_of_other_head(names[0])) names.clear();
    renaming.take(name, tensor, names);
  }
  fit_positions(ours, result);
  add_counters(ours, result);
  return result;
}

}  // namespace sluice::models
