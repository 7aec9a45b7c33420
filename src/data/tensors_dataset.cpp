#include "data/tensors_dataset.h"

#include <utility>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "data/split_files.h"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".safetensors";

class Tensors final : public Dataset {
 public:
  Tensors(const fs::path& file, Split split) : tensors_(read_tensors(file)) {
    info_.name = "tensors";
    info_.split = split;
    info_.kind = SampleKind::kTensors;
    info_.has_bytes = false;
    if (tensors_.empty()) throw DataError(file.string(), " has no tensors; save those of the samples, [n, ...] each");
    if (const auto targets = tensors_.find(kTargets);
        targets != tensors_.end() && at::isIntegralType(targets->second.scalar_type(), /*includeBool=*/true))
      targets->second = targets->second.to(at::kLong);  // as losses take them
    for (const auto& [name, tensor] : tensors_) add_field(file, name, tensor);
    if (size_ == 0) throw DataError(file.string(), " has no samples; give every tensor at least one");
  }

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] bool is_in_memory() const override { return true; }

  [[nodiscard]] Fields read_fields(std::span<const std::int64_t> ids) const override {
    for (const std::int64_t id : ids) static_cast<void>(checked(id));
    const at::Tensor rows = at::tensor(at::ArrayRef<std::int64_t>(ids.data(), ids.size()), at::kLong);
    Fields fields;
    for (const auto& [name, tensor] : tensors_) fields[name] = tensor.index_select(0, rows);
    return fields;
  }

 private:
  void add_field(const fs::path& file, const std::string& name, const at::Tensor& tensor) {
    if (tensor.dim() == 0)
      throw DataError(file.string(), ": '", printable(name),
                      "' is a single number; it needs one entry for each sample");
    if (!info_.fields.empty() && tensor.size(0) != size_)
      throw DataError(file.string(), ": '", printable(name), "' has ", tensor.size(0), " entries, but '",
                      printable(info_.fields.front().name), "' has ", size_,
                      "; they need as many as there are samples");
    size_ = tensor.size(0);
    info_.fields.push_back(field_of(name, tensor));
  }

  storage::TensorMap tensors_;
  DatasetInfo info_;
  std::int64_t size_ = 0;
};

}  // namespace

storage::TensorMap read_tensors(const fs::path& file) {
  try {
    return storage::read_safetensors(file).tensors;
  } catch (const CheckpointError& error) {
    throw DataError(error.what());
  }
}

FieldInfo field_of(const std::string& name, const at::Tensor& tensor) {
  FieldInfo field{.name = name, .type = tensor.scalar_type(), .sizes = tensor.sizes().slice(1).vec()};
  if (!at::isIntegralType(field.type, /*includeBool=*/false)) return field;
  const at::Tensor counted = tensor.masked_select(tensor.ne(kNoTarget));
  if (counted.numel() == 0) return field;
  field.lowest = counted.min().item<std::int64_t>();
  field.highest = counted.max().item<std::int64_t>();
  return field;
}

std::unique_ptr<Dataset> open_tensors(const fs::path& folder, Split split) {
  return std::make_unique<Tensors>(table_file(folder, split, {kEnding}), split);
}

}  // namespace sluice::data
