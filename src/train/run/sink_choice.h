// sink_choice: the records that a configuration asks for besides metrics.jsonl. report/ has the sinks.
#pragma once

#include "config/config.h"
#include "report/reporter.h"

namespace sluice::train {

[[nodiscard]] report::SinkChoice sinks_of(const config::Config& config);

}  // namespace sluice::train
