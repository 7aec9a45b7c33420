// setting_differences: finds settings that differ, and those among them that change what is learned. Pure.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace sluice::train {

struct Difference {
  std::string key, now, then;
};

[[nodiscard]] std::vector<Difference> find_differences(const config::Config& config, const config::Config& saved);

// "train.lr = 0.2 (was 0.1), model.dropout = 0.5 (was 0)": the first differences, and the number of the others.
[[nodiscard]] std::string in_words(const std::vector<Difference>& differences);

// The differences that change what is learned. In addition to is_learned_from(): the keys that size micro-batches if
// the model has batch-norms, the evaluation keys with train.lr_schedule = "plateau", and with
// train.reproducible = "layout" all keys that decide the rounding.
[[nodiscard]] std::vector<Difference> find_learned_differences(const config::Config& config,
                                                               const config::Config& saved);

[[nodiscard]] bool is_learned_from(const std::string& key);

[[nodiscard]] bool selects_data(const std::string& key);

}  // namespace sluice::train
