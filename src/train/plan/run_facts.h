// run_facts: facts for a run's records and reports that are known before the first step.
#pragma once

#include "engine/compose.h"
#include "report/run_totals.h"
#include "train/setup/setup.h"

namespace sluice::train {

[[nodiscard]] report::RunFacts facts_of(const Setup& setup, const engine::Composition& composition);

}  // namespace sluice::train
