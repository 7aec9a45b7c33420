// setting_differences: which settings of two configurations differ, and which of them change what is learned.
// Not here: what a resume refuses (resume.h). Pure.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace sluice::train {

struct Difference {
  std::string key, now, then;
};

[[nodiscard]] std::vector<Difference> find_differences(const config::Config& config, const config::Config& saved);

// "train.lr = 0.2 (was 0.1), model.dropout = 0.5 (was 0)": the first ones, and how many more there are.
[[nodiscard]] std::string in_words(const std::vector<Difference>& differences);

// The differences that change what is learned. Besides is_learned_from() these are, for models with batch-norms, the
// keys that size micro-batches, and with train.lr_schedule = "plateau" those of the evaluations.
[[nodiscard]] std::vector<Difference> find_learned_differences(const config::Config& config,
                                                               const config::Config& saved);

// Whether a run with another value of this key learns something else, whatever the model and the schedule. Other keys
// say how it is done, how long, or what is recorded of it.
[[nodiscard]] bool is_learned_from(const std::string& key);

// The keys that say which data a run is trained on, and where they lie.
[[nodiscard]] bool selects_data(const std::string& key);

}  // namespace sluice::train
