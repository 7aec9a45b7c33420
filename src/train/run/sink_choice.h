// sink_choice: what a configuration wants recorded besides metrics.jsonl. Not here: the sinks (report/).
#pragma once

#include "config/config.h"
#include "report/reporter.h"

namespace sluice::train {

[[nodiscard]] report::SinkChoice sinks_of(const config::Config& config);

}  // namespace sluice::train
