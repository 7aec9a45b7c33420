// image_folder: pictures in one folder per class, in the order of torchvision's ImageFolder: `path`/train/CLASS/... and
// `path`/val/CLASS/.... Classes are sorted by name, pictures of a class by folder and name; links are followed. Opening
// reads only names. Files are those with torchvision's endings; a file in another format than JPEG, PNG or WebP fails
// when it is read. Both splits have the classes of the training split. Errors: DataError.
#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"

namespace sluice::data {

[[nodiscard]] std::unique_ptr<Dataset> open_image_folder(const std::filesystem::path& path, Split split);

}  // namespace sluice::data
