// tar_dataset: pictures in tar files ("shards") as the WebDataset library lays them out: `path`/train/*.tar and
// `path`/val/*.tar, in the order of their names. Neighbouring members with the same name up to the first dot are a
// sample: KEY.jpg, .jpeg, .png or .webp, and its class as a decimal number in KEY.cls, or as "label" in KEY.json. Other
// members are counted and named in the log; those that look like a sample under a name with more dots are refused, and
// so are symbolic links in the place of these files. Only headers and classes are read on opening; a picture is read by
// its position. Threads: as Dataset. Errors: DataError.
#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"

namespace sluice::data {

[[nodiscard]] std::unique_ptr<Dataset> open_tar_dataset(const std::filesystem::path& path, Split split);

}  // namespace sluice::data
