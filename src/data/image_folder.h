// image_folder: pictures in folders, one a class, in the order of torchvision's ImageFolder: `path`/train/CLASS/... and
// `path`/val/CLASS/..., classes by name, in a class by folder and name, through links. Only the names are read on
// opening. Files are those with the endings that torchvision takes; one that is no JPEG, PNG or WebP is found when it
// is read. Both splits have the classes of the training split.
// Errors: DataError.
#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"

namespace sluice::data {

[[nodiscard]] std::unique_ptr<Dataset> open_image_folder(const std::filesystem::path& path, Split split);

}  // namespace sluice::data
