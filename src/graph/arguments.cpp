#include "graph/arguments.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "graph/scalar_type.h"

namespace sluice::graph {
namespace {

struct Alias {
  std::string_view argument, field;
};
constexpr std::array kAliases{
    Alias{"x", "inputs"},
    Alias{"input", "inputs"},
    Alias{"inputs", "inputs"},
    Alias{"image", "inputs"},
    Alias{"images", "inputs"},
    Alias{"pixel_values", "inputs"},
    Alias{"input_ids", "inputs"},
    Alias{"tokens", "inputs"},
    Alias{"idx", "inputs"},
    Alias{"mask", "mask"},
    Alias{"attention_mask", "mask"},
    Alias{"types", "types"},
    Alias{"token_type_ids", "types"},
    Alias{"positions", "positions"},
    Alias{"position_ids", "positions"},
    Alias{"y", "targets"},
    Alias{"target", "targets"},
    Alias{"targets", "targets"},
    Alias{"labels", "targets"},
    Alias{"start_positions", "starts"},
    Alias{"end_positions", "ends"},
};

}  // namespace

Arguments::Arguments(const Program& program, at::ScalarType from, at::ScalarType to) {
  for (const Input& input : program.inputs) {
    if (input.kind != InputKind::kUser) continue;
    const Value& value = program.values[input.value];
    const at::ScalarType type = scalar_type(value.type, concat("the input ", printable(input.name)));
    all_.push_back({input.name, usual_field(input.name), type == from ? to : type, value.sizes.size()});
  }
}

nn::Tensors Arguments::complete(const nn::Tensors& given) const {
  nn::Tensors all;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const bool is_given = i < given.size() && given[i].defined();
    all.push_back(is_given ? in_type(all_[i], given[i]) : missing(all_[i], given.front()));
  }
  return all;
}

at::Tensor Arguments::missing(const One& one, const at::Tensor& first) const {
  const bool has_places = first.defined() && first.dim() == 2 && one.dims == 2;
  const auto options = has_places ? first.options().dtype(one.type) : at::TensorOptions();
  if (has_places && one.field == "mask") return at::ones(first.sizes(), options);
  if (has_places && one.field == "types") return at::zeros(first.sizes(), options);
  if (has_places && one.field == "positions") return at::arange(first.size(1), options).expand(first.sizes());
  throw DataError("the model takes ", printable(one.name), ", which the batch lacks; use data that have it");
}

at::Tensor Arguments::in_type(const One& one, const at::Tensor& given) const {
  if (given.scalar_type() == one.type) return given;
  if (given.is_floating_point() && !at::isFloatingType(one.type)) {
    throw DataError("the model takes whole numbers as ", printable(one.name), ", but the batch has ",
                    c10::toString(given.scalar_type()), "; convert the data, or leave out data.mixup and data.cutmix");
  }
  return given.to(one.type);
}

std::string usual_field(const std::string& argument) {
  const auto* const found = std::ranges::find(kAliases, argument, &Alias::argument);
  return found == kAliases.end() ? std::string() : std::string(found->field);
}

}  // namespace sluice::graph
