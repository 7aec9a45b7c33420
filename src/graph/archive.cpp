#include "graph/archive.h"

#include <cstring>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <zlib.h>
#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "core/json_node.h"
#include "core/log.h"
#include "core/text.h"
#include "graph/scalar_type.h"

namespace sluice::graph {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdvice = "; export the model again: scripts/export_model.py";

class Reader {
 public:
  explicit Reader(const fs::path& file) : file_(file.string()), bytes_(fs::file_size(file)), zip_(file_) {
    constexpr const char* kSums = "extra/crc32.json";
    if (!has(kSums)) return;
    const nlohmann::json json = read_json(kSums);
    const JsonNode sums(json, concat(file_, ": ", kSums));
    sums.require(json.is_object(), "an object");
    for (const auto& [record, sum] : json.items()) {
      sums.require(sum.is_number_unsigned(), "whole numbers");
      sums_[record] = sum.get<std::uint64_t>();
    }
  }

  [[nodiscard]] bool has(const std::string& record) { return zip_.hasRecord(record); }

  [[nodiscard]] std::pair<at::DataPtr, std::size_t> read(const std::string& record) {
    if (!has(record)) throw CheckpointError(file_, ": has no ", printable(record), kAdvice);
    // torch.export does not compress, so a larger record is no tensor of this file.
    if (const std::size_t size = zip_.getRecordSize(record); size > bytes_)
      throw CheckpointError(file_, ": ", printable(record), " has ", size, " bytes, more than the file", kAdvice);
    auto [data, size] = zip_.getRecord(record);
    const auto sum = sums_.find(record);
    if (sum != sums_.end() && crc32_z(0, static_cast<const Bytef*>(data.get()), size) != sum->second)
      throw CheckpointError(file_, ": ", printable(record), " is damaged, its checksum is another", kAdvice);
    return {std::move(data), size};
  }

  template <typename Json = nlohmann::json>
  [[nodiscard]] Json read_json(const std::string& record) {
    const auto [data, size] = read(record);
    const auto* const text = static_cast<const char*>(data.get());
    auto json = Json::parse(text, text + size, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) throw CheckpointError(file_, ": ", printable(record), " is not JSON", kAdvice);
    return json;
  }

  std::map<std::string, SavedTensor> read_tensors(const std::string& folder, const std::string& table) {
    std::map<std::string, SavedTensor> tensors;
    const std::string name = concat(folder, table);
    if (!has(name)) return tensors;
    const auto in_order = read_json<nlohmann::ordered_json>(name);
    const nlohmann::json json(in_order);
    std::map<std::string, SavedTensor> known;  // by record
    const JsonNode config = JsonNode(json, concat(file_, ": ", table)).at("config");
    config.require(config.value().is_object(), "an object");
    for (const auto& [tensor, entry] : in_order.at("config").items()) {
      const JsonNode node = config.at(tensor);
      if (node.flag("use_pickle", false))
        throw ConfigError(node.where(), " is a pickled tensor, which is not read", kAdvice);
      const std::string record = concat(folder, node.text("path_name"));
      const JsonNode meta = node.at("tensor_meta");
      SavedTensor& first = known[record];
      if (!first.value.defined())
        first = {
            .value = make_tensor(meta, record), .owner = tensor, .requires_grad = meta.flag("requires_grad", false)};
      tensors[tensor] = first;
    }
    return tensors;
  }

 private:
  static std::vector<std::int64_t> extents_of(const JsonNode& node) {
    std::vector<std::int64_t> extents;
    for (const JsonNode& one : node.items()) extents.push_back(extent_of(one));
    return extents;
  }
  static std::int64_t extent_of(const JsonNode& node) {
    const JsonNode number = node.at("as_int");
    number.require(number.value().is_number_integer() && number.value() >= 0, "a whole number, at least 0");
    return number.value().get<std::int64_t>();
  }

  at::Tensor make_tensor(const JsonNode& meta, const std::string& record) {
    const auto [data, size] = read(record);
    const std::vector<std::int64_t> sizes = extents_of(meta.at("sizes")), strides = extents_of(meta.at("strides"));
    const std::int64_t offset = extent_of(meta.at("storage_offset"));
    const at::ScalarType type = scalar_type(meta.number("dtype"), meta.where());
    meta.require(sizes.size() == strides.size(), "as many strides as sizes");
    const auto width = static_cast<std::int64_t>(c10::elementSize(type));
    std::int64_t last = offset;  // element that the tensor reaches
    bool is_empty = false;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      is_empty = is_empty || sizes[i] == 0;
      std::int64_t reach = 0;
      if (__builtin_mul_overflow(std::max<std::int64_t>(sizes[i], 1) - 1, strides[i], &reach) ||
          __builtin_add_overflow(last, reach, &last))
        meta.reject("sizes that fit the bytes of the tensor");
    }
    const auto elements = static_cast<std::int64_t>(size) / width;
    if (!is_empty && last >= elements) meta.reject(concat("sizes that fit the ", size, " bytes of the tensor"));
    const at::Tensor bytes = at::empty({elements}, type);
    std::memcpy(bytes.mutable_data_ptr(), data.get(), static_cast<std::size_t>(elements * width));
    return is_empty ? at::empty(sizes, type) : bytes.as_strided(sizes, strides, offset);
  }

  std::string file_;
  std::uintmax_t bytes_;
  caffe2::serialize::PyTorchStreamReader zip_;
  std::map<std::string, std::uint64_t> sums_;  // CRC-32 by record; empty: the file has none
};

void check_state(const Archive& archive, const Program& program, const std::string& source) {
  for (const Input& input : program.inputs) {
    const auto& tensors = input.is_saved ? archive.state : archive.constants;
    if (input.kind != InputKind::kUser && !tensors.contains(input.name))
      throw CheckpointError(source, " has no tensor ", printable(input.name), kAdvice);
  }
}

Archive read(const fs::path& file) {
  Reader reader(file);
  constexpr const char* kProgram = "models/model.json";
  if (!reader.has(kProgram)) throw CheckpointError(file.string(), " is no file of torch.export.save", kAdvice);
  Archive archive{.program = parse_program(reader.read_json(kProgram), file.string())};
  if (constexpr const char* kEvaluation = "extra/evaluation.json"; reader.has(kEvaluation))
    archive.evaluation = parse_program(reader.read_json(kEvaluation), concat(file.string(), ": ", kEvaluation));
  archive.state = reader.read_tensors("data/weights/", "model_weights_config.json");
  archive.constants = reader.read_tensors("data/constants/", "model_constants_config.json");
  check_state(archive, archive.program, file.string());
  if (archive.evaluation) check_state(archive, *archive.evaluation, file.string());
  return archive;
}

}  // namespace

Archive read_archive(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error))
    throw ConfigError("model.file = \"", file.string(), "\" is not a file; export one with scripts/export_model.py");
  try {
    return read(file);
  } catch (const DataError& damage) {
    throw CheckpointError(damage.what(), kAdvice);
  } catch (const c10::Error& damage) {
    log_debug(file.string(), ": ", first_line(damage.what_without_backtrace()));
    throw CheckpointError(file.string(), " is no file of torch.export.save, or it is cut off or damaged", kAdvice);
  }
}

}  // namespace sluice::graph
