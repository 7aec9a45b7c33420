// tar_dataset: pictures in tar files ("shards") in the layout of the WebDataset library: `path`/train/*.tar and
// `path`/val/*.tar, sorted by name. A sample is adjacent members with the same name up to the first dot: a picture
// (KEY.jpg, .jpeg, .png or .webp) and its class, as a decimal number in KEY.cls or as "label" in KEY.json. Other
// members are counted and logged. Rejected: members that look like a sample but have more dots, and symbolic links in
// place of these files.
// Opening reads headers and classes; a picture is read by its position. Threads: as Dataset. Errors: DataError.
#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"

namespace sluice::data {

[[nodiscard]] std::unique_ptr<Dataset> open_tar_dataset(const std::filesystem::path& path, Split split);

}  // namespace sluice::data
