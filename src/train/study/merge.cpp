#include "train/study/merge.h"

#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "models/lora.h"
#include "storage/checkpoint.h"
#include "storage/files.h"
#include "storage/weights_files.h"
#include "train/setup/task_options.h"
#include "train/study/saved_config.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

// Only names, shapes and layouts of linear layers matter, so sizes that the data would give may be any.
models::ModelOptions model_of(const config::Config& config, const fs::path& checkpoint) {
  constexpr int kAnyPixels = 224, kAnyClasses = 2, kAnyChannels = 3;
  models::ModelOptions options(config.model);
  if (options.classes == 0) options.classes = kAnyClasses;
  if (options.image_size == 0) options.image_size = kAnyPixels;
  if (options.channels == 0) options.channels = kAnyChannels;
  const fs::path file = checkpoint / "config.json";
  if (std::error_code ignored; models::is_text(options) && fs::exists(file, ignored)) {
    options.text = models::read_text_config(file.string());
    options.vocabulary = options.context = 0;
  }
  return options;
}

bool is_of_checkpoint_alone(const fs::path& file) {
  return file.extension() == ".safetensors" || file.filename() == "state.json" ||
         file.filename() == "adapter_config.json";
}

void copy_beside(const fs::path& checkpoint, const fs::path& out) {
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint)) {
    if (entry.is_regular_file() && !is_of_checkpoint_alone(entry.path()))
      storage::write_text_atomically(out / entry.path().filename(), storage::read_text(entry.path()));
  }
}

}  // namespace

MergedWeights merge_adapters(const fs::path& from, const fs::path& out) {
  const fs::path checkpoint = checkpoint_in("sluice merge", from);
  storage::CheckpointContents contents = storage::load_checkpoint(checkpoint);
  config::Config config = config_of_checkpoint(checkpoint, contents.state);
  settle_task(config);
  if (config.model.lora_rank == 0) {
    throw ConfigError(checkpoint.string(), " has no adapters (model.lora_rank = 0); use its model.safetensors");
  }
  storage::make_directories(out);
  storage::check_output("--out", out / "model.safetensors", {checkpoint / "model.safetensors"});
  const auto before = contents.model.size();
  const storage::TensorMap merged = models::merge_adapters(model_of(config, checkpoint), std::move(contents.model));
  std::map<std::string, std::string> metadata = storage::read_about_weights(checkpoint).metadata;
  metadata["format"] = "pt";
  storage::write_safetensors(out / "model.safetensors", merged, metadata);
  copy_beside(checkpoint, out);
  return {.checkpoint = checkpoint,
          .step = contents.state.at("step"),
          .adapters = static_cast<std::int64_t>(before - merged.size()) / 2};
}

}  // namespace sluice::train
