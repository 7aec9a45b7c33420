// image_folder: pictures in one folder per class, in the order of torchvision's ImageFolder: `path`/train/CLASS/... and
// `path`/val/CLASS/.... Links are followed; opening reads only names. Files are those with torchvision's endings; other
// formats than JPEG, PNG and WebP fail when they are read. Errors: DataError.
#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"

namespace sluice::data {

[[nodiscard]] std::unique_ptr<Dataset> open_image_folder(const std::filesystem::path& path, Split split);

}  // namespace sluice::data
