// subset: some samples of a data set as a data set of its own, and a training set cut in two. Not here: which samples
// come when (sampler.h). Threads: as Dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "data/dataset.h"

namespace sluice::data {

// `indices`: positions into `whole`, in the order of the new set, which has `info`.
[[nodiscard]] std::unique_ptr<Dataset> subset(std::shared_ptr<const Dataset> whole, std::vector<std::int64_t> indices,
                                              DatasetInfo info);

// The first samples, or evenly spaced ones of a set that comes class by class; the whole where it has no more.
[[nodiscard]] std::unique_ptr<Dataset> limited(std::unique_ptr<Dataset> whole, std::int64_t limit);

struct HeldOut {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;  // of Split::kTest
};
// Holds `part` of the samples out, rounded, at least one, drawn evenly: the same ones of equally many samples, whatever
// the seed of the run, so that runs can be compared. Both keep the order of the whole. Throws ConfigError where nothing
// would be left to train with.
[[nodiscard]] HeldOut hold_out(const std::shared_ptr<const Dataset>& whole, double part);

}  // namespace sluice::data
