// tar_dataset: pictures in tar files ("shards") in the layout of the WebDataset library: `path`/train/*.tar and
// `path`/val/*.tar, sorted by name. A sample is adjacent members with the same name up to the first dot: a picture and
// its class, as a decimal number in KEY.cls or as "label" in KEY.json. Other members are counted and logged, but
// rejected if they look like a sample with more dots, or if they are symbolic links.
// Opening reads headers and classes. Threads: as Dataset. Errors: DataError.
#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"

namespace sluice::data {

[[nodiscard]] std::unique_ptr<Dataset> open_tar_dataset(const std::filesystem::path& path, Split split);

}  // namespace sluice::data
