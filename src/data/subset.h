// subset: some samples of a data set as a data set, and a training set split in two. Threads: as Dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "data/dataset.h"

namespace sluice::data {

// `indices`: positions in `whole`, in the order of the new set. `info`: of the new set.
[[nodiscard]] std::unique_ptr<Dataset> subset(std::shared_ptr<const Dataset> whole, std::vector<std::int64_t> indices,
                                              DatasetInfo info);

// The first samples, or evenly spaced ones if the set is sorted by class; `whole` itself if it has no more.
// Windows of a question stay together, so there may be a few more.
[[nodiscard]] std::unique_ptr<Dataset> limited(std::unique_ptr<Dataset> whole, std::int64_t limit);

struct HeldOut {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;  // has Split::kTest
};
// Holds out a random `part` of the samples, at least one. With questions it is a part of these, with all their windows.
// Data sets of equal size give the same samples for any seed, so that runs can be compared. Both sets keep the order.
// ConfigError if no training samples would remain.
[[nodiscard]] HeldOut hold_out(const std::shared_ptr<const Dataset>& whole, double part);

}  // namespace sluice::data
