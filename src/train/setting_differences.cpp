#include "train/setting_differences.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/concat.h"
#include "core/text.h"

namespace sluice::train {
namespace {

constexpr std::array kTablesLearnedFrom{"model.", "data.", "train.", "ps.", "freeze."};
constexpr std::array kKeysLearnedFrom{"device.tf32", "pipeline.batch_norm", "replicas.sync", "replicas.bucket_type"};
// Of these tables, keys or beginnings of keys that say how it is done, how long, or what is recorded of it.
constexpr std::array kNotLearnedFrom{"train.steps",
                                     "train.epochs",
                                     "train.micro_batch",
                                     "train.stop_patience",
                                     "train.step_timeout_s",
                                     "train.noise_scale_every_steps",
                                     "train.eval_",
                                     "data.workers",
                                     "data.prefetch",
                                     "data.broken",
                                     "ps.placement",
                                     "ps.address",
                                     "ps.keys",
                                     "ps.servers",
                                     "ps.shards",
                                     "ps.partitions",
                                     "ps.log",
                                     "freeze.elastic",
                                     "freeze.replicas",
                                     "freeze.cache"};

}  // namespace

bool is_learned_from(const std::string& key) {
  const auto begins = [&](const char* with) { return key.starts_with(with); };
  const bool may_be = std::ranges::any_of(kTablesLearnedFrom, begins) || std::ranges::any_of(kKeysLearnedFrom, begins);
  return may_be && std::ranges::none_of(kNotLearnedFrom, begins);
}

std::vector<Difference> find_differences(const config::Config& config, const config::Config& saved) {
  std::vector<Difference> all;
  const auto now = config::values(config), then = config::values(saved);
  for (std::size_t i = 0; i < now.size(); ++i) {
    const auto& [key, value] = now[i];
    if (value != then[i].second) all.push_back({key, value, then[i].second});
  }
  return all;
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

bool says_which_data(const std::string& key) {
  constexpr std::array<std::string_view, 4> keys{"data.name", "data.path", "data.limit", "data.samples"};
  return std::ranges::find(keys, key) != keys.end();
}

}  // namespace sluice::train
