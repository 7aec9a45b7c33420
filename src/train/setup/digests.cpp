#include "train/setup/digests.h"

#include "storage/tensor_digest.h"

namespace sluice::train {

nlohmann::ordered_json digests_of(std::int64_t step, const storage::CheckpointContents& contents) {
  nlohmann::ordered_json digests{{"step", step},
                                 {"weights", storage::digest_of_tensors(contents.model)},
                                 {"optimizer", storage::digest_of_tensors(contents.optimizer)}};
  if (!contents.average.empty()) digests["ema"] = storage::digest_of_tensors(contents.average);
  return digests;
}

nlohmann::ordered_json to_json(const engine::StepDigests& digests) {
  const auto each = [](const std::vector<engine::NamedDigests>& all) {
    auto lists = nlohmann::ordered_json::object();
    for (const auto& [name, of_micro_batches] : all) lists[name] = of_micro_batches;
    return lists;
  };
  const auto one = [](const std::vector<engine::NamedDigests>& all) {
    auto values = nlohmann::ordered_json::object();
    for (const auto& [name, of_step] : all) values[name] = of_step.front();
    return values;
  };
  return {{"forward", each(digests.forward)},
          {"backward", each(digests.backward)},
          {"sum", one(digests.sum)},
          {"update", one(digests.update)},
          {"buffers", one(digests.buffers)}};
}

}  // namespace sluice::train
