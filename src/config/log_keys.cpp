// log_keys: the keys of [log].
#include "config/keys.h"

namespace sluice::config::internal {

Keys log_keys() {
  return {
      {"log.every", field<&Config::log, &LogConfig::every>(), at_least(1), "steps",
       "Steps between two log lines; metrics.jsonl has every step", kHow | kPerProcess},
      {"log.lines", field<&Config::log, &LogConfig::lines>(), words({"short", "full"}), "",
       "Format of the log. short: one line every log.every steps. full: nine more lines before it, in "
       "PipeTransformer's format",
       kHow | kPerProcess | kAdvanced},
      {"log.digest_every", field<&Config::log, &LogConfig::digest_every>(), at_least(0), "steps",
       "Steps between digests of weights and optimizer state in metrics.jsonl; the end of the run has one, too. 0: "
       "none",
       kHow},
      {"log.digest_layers", field<&Config::log, &LogConfig::digest_layers>(), any(), "",
       "Also write digests of each layer's outputs and gradients, for `sluice compare`; slow. Needs "
       "train.reproducible = \"layout\"",
       kHow | kAdvanced},
      {"log.tensorboard", field<&Config::log, &LogConfig::tensorboard>(), any(), "", "Write TensorBoard event files",
       kHow | kPerProcess},
      {"log.csv", field<&Config::log, &LogConfig::csv>(), any(), "",
       "Also write every step to metrics.csv and every evaluation to evaluations.csv", kHow | kPerProcess},
  };
}

}  // namespace sluice::config::internal
