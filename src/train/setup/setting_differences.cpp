#include "train/setup/setting_differences.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "config/schema.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "models/model.h"

namespace sluice::train {
namespace {

constexpr std::array<std::string_view, 3> kEvaluations{"train.eval_every_steps", "train.eval_every_epochs",
                                                       "train.eval_limit"};
// Keys that decide how many samples a batch-norm normalises together.
constexpr std::array<std::string_view, 3> kMicroBatch{"pipeline.chunks", "train.micro_batch", "replicas.local"};

bool is_one_of(std::span<const std::string_view> keys, const std::string& key) {
  return std::ranges::find(keys, key) != keys.end();
}

bool has_batch_norms(const config::Config& config) {
  models::ModelOptions model(config.model);
  if (config.model.file.empty()) {
    if (model.classes == 0) model.classes = 2;
    if (model.channels == 0) model.channels = 3;
    if (model.image_size == 0) model.image_size = 32 * model.patch_size;
  }
  try {
    return models::has_batch_norms(model);
  } catch (const ConfigError&) {  // a user's own model that rejects these sizes may have batch-norms
    return true;
  }
}

bool decides_rounding(const Difference& difference, const config::Config& config, const config::Config& saved) {
  if (!config.train.is_reproducible_by_layout()) return false;
  const std::string& key = difference.key;
  if (key == "freeze.cache") return (config.freeze.cache == "off") != (saved.freeze.cache == "off");
  return key == "train.micro_batch" || key == "device.threads";
}

bool sizes_micro_batches(const config::Config& config, const std::string& key) {
  if (!is_one_of(kMicroBatch, key)) return false;
  const bool spans_replicas = config.pipeline.batch_norm == "sync" && config.train.micro_batch == 0;
  return (key != "replicas.local" || !spans_replicas) && has_batch_norms(config);
}

}  // namespace

bool is_learned_from(const std::string& key) { return !config::has(key, config::kHow); }

std::vector<Difference> find_differences(const config::Config& config, const config::Config& saved) {
  std::vector<Difference> all;
  const auto now = config::values(config), then = config::values(saved);
  for (std::size_t i = 0; i < now.size(); ++i) {
    const auto& [key, value] = now[i];
    if (value != then[i].second) all.push_back({key, value, then[i].second});
  }
  return all;
}

std::vector<Difference> find_learned_differences(const config::Config& config, const config::Config& saved) {
  std::vector<Difference> differences = find_differences(config, saved);
  const bool lowers_by_evaluations = config.train.lr_schedule == "plateau";
  std::erase_if(differences, [&](const Difference& difference) {
    const std::string& key = difference.key;
    return !is_learned_from(key) && !(lowers_by_evaluations && is_one_of(kEvaluations, key)) &&
           !sizes_micro_batches(config, key) && !decides_rounding(difference, config, saved);
  });
  return differences;
}

std::string in_words(const std::vector<Difference>& differences) {
  constexpr std::size_t kNamed = 4;
  std::vector<std::string> words;
  for (const auto& [key, now, then] : differences) {
    if (words.size() < kNamed) words.push_back(concat(key, " = ", now, " (was ", then, ")"));
  }
  const std::size_t more = differences.size() - words.size();
  return concat(join(words, ", "), more > 0 ? concat(" and ", counted(more, "more difference")) : std::string{});
}

bool selects_data(const std::string& key) { return config::has(key, config::kSource); }

}  // namespace sluice::train
