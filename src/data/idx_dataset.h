// idx_dataset: four idx files in MNIST's layout, held in memory, with labels below 10. Errors: DataError.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace sluice::data {

struct IdxFolder {
  std::string name;
  std::filesystem::path folder;  // its files are plain or have the ending .gz
  double mean = 0;               // of pixel / 255
  double stddev = 1;
  std::string when_missing;  // advice for a missing file
};

[[nodiscard]] std::unique_ptr<Dataset> open_idx_dataset(const IdxFolder& source, Split split);

// File names without .gz: images and labels of train, then of test.
[[nodiscard]] std::vector<std::string> idx_file_names();

}  // namespace sluice::data
