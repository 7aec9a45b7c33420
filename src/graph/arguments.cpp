#include "graph/arguments.h"

#include <array>
#include <string_view>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "graph/node_arguments.h"
#include "graph/scalar_type.h"

namespace sluice::graph {
namespace {

struct Field {
  std::string_view name, arguments;  // arguments of forward() that usually take it, as is_listed() reads them
};
constexpr std::array kFields{
    Field{"inputs", " x input inputs image images pixel_values input_ids tokens idx "},
    Field{"mask", " mask attention_mask "},
    Field{"types", " types token_type_ids "},
    Field{"positions", " positions position_ids "},
    Field{"targets", " y target targets labels "},
    Field{"starts", " start_positions "},
    Field{"ends", " end_positions "},
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

at::Tensor Arguments::missing(const Expected& one, const at::Tensor& first) const {
  const bool is_text = first.defined() && first.dim() == 2 && one.dims == 2;
  const auto options = is_text ? first.options().dtype(one.type) : at::TensorOptions();
  if (is_text && one.field == "mask") return at::ones(first.sizes(), options);
  if (is_text && one.field == "types") return at::zeros(first.sizes(), options);
  if (is_text && one.field == "positions") return at::arange(first.size(1), options).expand(first.sizes());
  throw DataError("the model takes ", printable(one.name), ", which the batch lacks; use data that have it");
}

at::Tensor Arguments::in_type(const Expected& one, const at::Tensor& given) const {
  if (given.scalar_type() == one.type) return given;
  if (given.is_floating_point() && !at::isFloatingType(one.type)) {
    throw DataError("the model takes whole numbers as ", printable(one.name), ", but the batch has ",
                    c10::toString(given.scalar_type()), "; convert the data, or leave out data.mixup and data.cutmix");
  }
  return given.to(one.type);
}

std::string usual_field(const std::string& argument) {
  for (const Field& field : kFields) {
    if (is_listed(argument, field.arguments)) return std::string(field.name);
  }
  return {};
}

}  // namespace sluice::graph
