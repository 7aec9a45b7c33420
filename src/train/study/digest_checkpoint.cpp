#include "train/study/digest_checkpoint.h"

#include "storage/checkpoint.h"
#include "train/setup/digests.h"
#include "train/study/saved_config.h"

namespace sluice::train {

nlohmann::ordered_json digest_checkpoint(const std::filesystem::path& dir) {
  const std::filesystem::path checkpoint = checkpoint_in("sluice digest", dir);
  const storage::CheckpointContents contents = storage::load_checkpoint(checkpoint);
  return digests_of(contents.state.at("step").get<std::int64_t>(), contents);
}

}  // namespace sluice::train
