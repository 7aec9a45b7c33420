#include "train/run/saved_average.h"

#include "core/concat.h"
#include "optim/optimizer.h"

namespace sluice::train {
namespace {

std::string name_of_average(const std::string& parameter) { return concat(optim::kAverage, "/", parameter); }

}  // namespace

void set_average_apart(storage::CheckpointContents& contents) {
  storage::TensorMap average;
  for (const auto& [name, tensor] : contents.model) {
    auto found = contents.optimizer.extract(name_of_average(name));
    if (found) average[name] = found.mapped();
  }
  if (average.empty()) return;
  average.insert(contents.model.begin(), contents.model.end());  // adds the buffers, which have no average
  contents.average = std::move(average);
}

void put_average_back(storage::CheckpointContents& contents, const storage::TensorMap& buffers) {
  for (const auto& [name, tensor] : contents.average) {
    if (!buffers.contains(name)) contents.optimizer[name_of_average(name)] = tensor;
  }
  contents.average.clear();
}

}  // namespace sluice::train
