// npy_dataset: images of the user's own, as NumPy saves them: a folder with train_images.npy, train_labels.npy,
// test_images.npy and test_labels.npy, held in memory. Images are bytes (uint8), [n, height, width],
// [n, height, width, channels] or [n, channels, height, width] with 1 or 3 channels; labels are whole numbers [n], from
// 0 on; the largest one of training says how many classes there are. Mean and deviation are computed of the training
// images.
// Errors: DataError.
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
