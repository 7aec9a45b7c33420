#include "profiler/operators/call_cost.h"

#include <algorithm>
#include <array>
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace sluice::operators {

// An operator that reads only indexed slices or values of one argument, a table.
struct TableReader {
  std::string_view name;
  std::size_t table, index;
  // true: slices of the dimension that the second argument names if that is a number, else of the first dimension.
  bool reads_slices;
};

namespace {

using profiler::Shape;
using profiler::Touched;

// Schemas mark views, but not in-place variants or autograd's `detach`.
constexpr auto kMemoryAlone = std::to_array<std::string_view>(
    {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided",
     "aten::resize_", "aten::set_", "aten::as_strided_", "aten::squeeze_", "aten::unsqueeze_", "aten::t_",
     "aten::transpose_", "aten::detach_", "detach"});

constexpr std::array kTableReaders{TableReader{"aten::index_select", 0, 2, true},
                                   TableReader{"aten::embedding", 0, 1, true},
                                   TableReader{"aten::gather", 0, 2, false},
                                   TableReader{"aten::nll_loss_forward", 0, 1, false},
                                   TableReader{"aten::nll_loss2d_forward", 0, 1, false},
                                   TableReader{"aten::nll_loss_backward", 1, 2, false},
                                   TableReader{"aten::nll_loss2d_backward", 1, 2, false}};

std::uint64_t bytes_read(const TableReader& reader, const at::Tensor& table, std::span<const c10::IValue> inputs) {
  auto values = static_cast<std::uint64_t>(inputs[reader.index].toTensor().numel());
  if (reader.reads_slices && table.dim() > 0) {
    const std::int64_t dim = inputs[1].isInt() ? inputs[1].toInt() : 0;
    values *= static_cast<std::uint64_t>(table.numel() / std::max<std::int64_t>(table.size(dim), 1));
  }
  return values * table.itemsize();
}

bool makes_views(const at::RecordFunction& call) {
  const std::optional<c10::OperatorName> name = call.operator_name();
  if (!name) return false;
  const auto handle = c10::Dispatcher::singleton().findSchema(*name);
  if (!handle) return false;
  const auto& results = handle->schema().returns();
  return !results.empty() && std::ranges::all_of(results, [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

void add_tensor(const at::Tensor& tensor, std::vector<Touched>& all) {
  if (!tensor.defined() || tensor.numel() == 0 || !tensor.has_storage()) return;
  std::uint64_t values = 1;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.stride(i) != 0) values *= static_cast<std::uint64_t>(tensor.size(i));
  }
  const std::uint64_t offset = static_cast<std::uint64_t>(tensor.storage_offset()) * tensor.itemsize();
  const auto* const memory = static_cast<const char*>(tensor.storage().data());
  if (memory == nullptr) return;
  all.push_back({memory + offset, values * tensor.itemsize()});
}

void add_value(const c10::IValue& value, std::vector<Touched>& all) {
  if (value.isTensor()) {
    add_tensor(value.toTensor(), all);
  } else if (value.isList()) {
    for (const c10::IValue& one : value.toListRef()) {
      if (!one.isTensor()) break;
      add_tensor(one.toTensor(), all);
    }
  }
}

Shape shape_of(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return {};
  return value.toTensor().sizes().vec();
}

}  // namespace

OperatorTraits traits_of(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  const auto* const reader = std::ranges::find(kTableReaders, name, &TableReader::name);
  return {.formula = profiler::flop_formula(name),
          .touches_nothing = std::ranges::find(kMemoryAlone, name) != kMemoryAlone.end() || makes_views(call),
          .table_reader = reader == kTableReaders.end() ? nullptr : reader};
}

void add_touched(std::span<const c10::IValue> values, std::vector<Touched>& all) {
  for (const c10::IValue& value : values) add_value(value, all);
}

void add_touched_inputs(const OperatorTraits& traits, std::span<const c10::IValue> inputs, std::vector<Touched>& all) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::size_t before = all.size();
    add_value(inputs[i], all);
    const TableReader* const reader = traits.table_reader;
    if (reader == nullptr || i != reader->table || all.size() == before) continue;
    all.back().bytes = std::min(all.back().bytes, bytes_read(*reader, inputs[i].toTensor(), inputs));
  }
}

std::vector<Shape> shapes_of(std::span<const c10::IValue> values) {
  std::vector<Shape> shapes;
  for (const c10::IValue& value : values) shapes.push_back(shape_of(value));
  return shapes;
}

std::vector<std::vector<bool>> flags_of(std::span<const c10::IValue> values) {
  std::vector<std::vector<bool>> flags;
  for (const c10::IValue& value : values) {
    std::vector<bool>& own = flags.emplace_back();
    if (value.isBool()) own.push_back(value.toBool());
    if (!value.isBoolList()) continue;
    for (const bool one : value.toBoolList()) own.push_back(one);
  }
  return flags;
}

}  // namespace sluice::operators
