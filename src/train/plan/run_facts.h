// run_facts: what a run's records and reports say of it that is known before the first step on a plan.
#pragma once

#include "engine/compose.h"
#include "report/run_totals.h"
#include "train/setup/setup.h"

namespace sluice::train {

// Whether the loss is the plain cross-entropy of tokens, whose exponential is the perplexity.
[[nodiscard]] bool has_perplexity(const Setup& setup);

[[nodiscard]] report::RunFacts facts_of(const Setup& setup, const engine::Composition& composition);

}  // namespace sluice::train
