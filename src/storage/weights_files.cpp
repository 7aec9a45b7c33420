#include "storage/weights_files.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "storage/checkpoint_store.h"
#include "storage/files.h"
#include "storage/safetensors_header.h"

namespace sluice::storage {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

[[noreturn]] void refuse_index(const fs::path& index, const std::string& why) {
  throw CheckpointError(index.string(), " ", why, "; fetch or save the weights again");
}

// Accepts only a plain file name, so that an index from an unknown source cannot name files in other folders.
void check_shard_name(const fs::path& index, const std::string& name) {
  const fs::path path(name);
  if (!name.empty() && path == path.filename() && name != "." && name != "..") return;
  refuse_index(index, concat("names ", quoted_name(name), ", which is not a file in the same folder"));
}

std::map<std::string, std::string> files_by_tensor(const fs::path& index) {
  const auto json = nlohmann::json::parse(read_text(index), nullptr, /*allow_exceptions=*/false);
  const auto found = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || found == json.end() || !found->is_object() || found->empty())
    refuse_index(index, "is not an index of weights: it has no 'weight_map' with the file of each tensor");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : found->items()) {
    if (!file.is_string()) refuse_index(index, concat("names no file for ", quoted_name(tensor)));
    check_shard_name(index, file.get<std::string>());
    files[tensor] = file.get<std::string>();
  }
  return files;
}

void add_file(const fs::path& index, const std::string& name, TensorMap& all,
              std::map<std::string, std::string>& from) {
  const fs::path file = index.parent_path() / name;
  if (!is_there(file)) refuse_index(index, concat("names ", quoted_name(name), ", which is missing"));
  for (auto& [tensor, value] : read_safetensors(file).tensors) {
    const auto [known, is_new] = from.emplace(tensor, name);
    if (!is_new)
      refuse_index(index, concat("has tensor ", quoted_name(tensor), " twice, in ", known->second, " and in ", name));
    all.emplace(tensor, std::move(value));
  }
}

TensorMap read_shards(const fs::path& index) {
  const auto files = files_by_tensor(index);
  TensorMap all;
  std::map<std::string, std::string> from;
  std::set<std::string> read;
  for (const auto& [tensor, file] : files) {
    if (read.insert(file).second) add_file(index, file, all, from);
  }
  for (const auto& [tensor, file] : files) {
    const auto found = from.find(tensor);
    if (found == from.end() || found->second != file)
      refuse_index(index, concat("says that ", file, " has tensor ", quoted_name(tensor), ", but the file lacks it"));
  }
  return all;
}

}  // namespace

fs::path resolve_weights(const fs::path& path) {
  const fs::path checkpoints = path / "checkpoints";
  std::error_code ignored;
  const bool is_run = fs::is_directory(checkpoints, ignored) && !is_there(path / kOneFile) && !is_there(path / kIndex);
  if (!is_run) return path;
  if (const CheckpointScan scan = scan_checkpoints(checkpoints); scan.newest) return *scan.newest;
  throw CheckpointError("there is no complete checkpoint in ", checkpoints.string(),
                        "; name a run that has saved one, or a file of weights");
}

TensorMap read_weights(const fs::path& path) {
  constexpr std::string_view kAdvice =
      "; set model.weights (or --weights) to a safetensors file, an index of several, a folder with one of these, or a "
      "run directory";
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (status.type() == fs::file_type::not_found)
    throw CheckpointError("there is no weights file or folder ", path.string(), kAdvice);
  if (!fs::is_directory(status))
    return path.extension() == ".json" ? read_shards(path) : read_safetensors(path).tensors;
  if (is_there(path / kOneFile)) return read_safetensors(path / kOneFile).tensors;
  if (is_there(path / kIndex)) return read_shards(path / kIndex);
  throw CheckpointError("folder ", path.string(), " has neither ", kOneFile, " nor ", kIndex, kAdvice);
}

nlohmann::json read_object(const fs::path& file) {
  if (!is_there(file)) return {};
  auto json = nlohmann::json::parse(read_text(file), nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : nlohmann::json();
}

fs::path folder_of_weights(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? path : path.parent_path();
}

AboutWeights read_about_weights(const fs::path& path) {
  const fs::path folder = folder_of_weights(path), file = folder == path ? path / kOneFile : path;
  AboutWeights about{.folder = folder,
                     .config = read_object(folder / "config.json"),
                     .preprocessor = read_object(folder / "preprocessor_config.json"),
                     .state = read_object(folder / "state.json")};
  if (file.extension() != ".json" && is_there(file)) about.metadata = read_safetensors(file).metadata;
  return about;
}

}  // namespace sluice::storage
