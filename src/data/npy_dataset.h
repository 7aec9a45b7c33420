// npy_dataset: train_images.npy, train_labels.npy, test_images.npy and test_labels.npy of a folder, held in memory.
// Images are uint8: [n, height, width], [n, height, width, channels] or [n, channels, height, width], with 1 or 3
// channels. Labels are whole numbers [n] from 0; the largest training label determines the number of classes. Errors:
// DataError.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace sluice::data {

[[nodiscard]] std::unique_ptr<Dataset> open_npy_dataset(const std::filesystem::path& folder, Split split);
[[nodiscard]] std::vector<std::string> npy_file_names();

}  // namespace sluice::data
