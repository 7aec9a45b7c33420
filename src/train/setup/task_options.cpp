#include "train/setup/task_options.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "models/model.h"

namespace sluice::train {

task::TaskPtr task_of(const config::Config& config) {
  const double label_smoothing = config.train.label_smoothing;
  return models::kind_of(config.model.name) == SampleKind::kTokens ? task::make_language_model(label_smoothing)
                                                                   : task::make_classification(label_smoothing);
}

std::string best_by(const config::TrainConfig& train, const Scores& scores) {
  std::vector<std::string> known{"loss"};
  for (const Score& score : scores) known.push_back(score.name);
  if (std::ranges::find(known, train.best_by) != known.end()) return train.best_by;
  if (train.best_by == config::TrainConfig{}.best_by)
    return std::ranges::find_if(scores, [](const Score& score) { return score.needs > 0; })->name;
  throw ConfigError("train.best_by = \"", train.best_by,
                    "\" is not a score of this task; use one of: ", join(known, ", "),
                    did_you_mean(train.best_by, known));
}

}  // namespace sluice::train
