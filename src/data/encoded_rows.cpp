#include "data/encoded_rows.h"

#include <algorithm>

#include "core/check.h"

namespace sluice::data {

void TokenArray::append(std::span<const text::TokenId> ids) {
  is_wide_ ? static_cast<void>(wide_.insert(wide_.end(), ids.begin(), ids.end()))
           : static_cast<void>(narrow_.insert(narrow_.end(), ids.begin(), ids.end()));
}

void TokenArray::copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const {
  check(begin >= 0 && count >= 0 && begin + count <= size(), "tokens of the array");
  is_wide_ ? std::copy_n(wide_.begin() + begin, count, out) : std::copy_n(narrow_.begin() + begin, count, out);
}

void EncodedRows::append(const text::Encoding& encoding) {
  ids_.append(encoding.ids);
  types_.insert(types_.end(), encoding.type_ids.begin(), encoding.type_ids.end());
  has_types_ = has_types_ || std::ranges::any_of(encoding.type_ids, [](std::uint8_t type) { return type != 0; });
  begins_.push_back(ids_.size());
}

std::vector<int> EncodedRows::lengths() const {
  std::vector<int> all;
  for (std::int64_t row = 0; row < size(); ++row) all.push_back(static_cast<int>(length(row)));
  return all;
}

Fields EncodedRows::stack(std::span<const std::int64_t> rows, const TextOptions& options, std::int64_t pad_id) const {
  std::int64_t width = options.pads_to_max ? options.max_length : 1;
  for (const std::int64_t row : rows) width = std::max(width, length(row));
  const auto is_short = [&](std::int64_t row) { return length(row) < width; };
  const bool has_mask = options.always_has_mask || std::ranges::any_of(rows, is_short);
  const auto n = static_cast<std::int64_t>(rows.size());
  Fields fields{{kInputs, uninitialized({n, width}, at::kLong)}};
  if (has_types_) fields[kTypes] = uninitialized({n, width}, at::kLong);
  if (has_mask) fields[kMask] = uninitialized({n, width}, at::kLong);
  const auto row_of = [&](const char* name, std::int64_t i) {
    return fields.at(name).mutable_data_ptr<std::int64_t>() + i * width;
  };
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t begin = begins_[rows[i]], own = length(rows[i]);
    ids_.copy(begin, own, row_of(kInputs, i));
    std::fill_n(row_of(kInputs, i) + own, width - own, pad_id);
    if (has_types_) std::fill_n(std::copy_n(types_.begin() + begin, own, row_of(kTypes, i)), width - own, 0);
    if (has_mask) std::fill_n(std::fill_n(row_of(kMask, i), own, 1), width - own, 0);
  }
  return fields;
}

std::vector<FieldInfo> EncodedRows::fields() const {
  std::vector<FieldInfo> all{{.name = kInputs, .sizes = {-1}}, {.name = kMask, .sizes = {-1}, .is_optional = true}};
  if (has_types_) all.push_back({.name = kTypes, .sizes = {-1}});
  return all;
}

at::Tensor column(std::int64_t n, const std::function<std::int64_t(std::int64_t)>& value_of) {
  const at::Tensor values = uninitialized({n}, at::kLong);
  for (std::int64_t i = 0; i < n; ++i) values.mutable_data_ptr<std::int64_t>()[i] = value_of(i);
  return values;
}

at::Tensor number_column(std::int64_t n, const std::function<double(std::int64_t)>& value_of) {
  const at::Tensor values = uninitialized({n}, at::kDouble);
  for (std::int64_t i = 0; i < n; ++i) values.mutable_data_ptr<double>()[i] = value_of(i);
  return values;
}

std::int64_t padding_id(const text::Tokenizer& tokenizer) {
  for (const char* name : {"[PAD]", "<pad>", "<|pad|>", "<|endoftext|>"}) {
    if (const text::TokenId id = tokenizer.find(name); id != text::kNoToken) return id;
  }
  return 0;
}

}  // namespace sluice::data
