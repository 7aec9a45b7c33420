// idx_dataset: a folder of four idx files in the layout of MNIST, held in memory (47 MB for 60,000 images).
// Checked on opening: as many labels as images, every label below 10. Errors: DataError.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace sluice::data {

struct IdxFolder {
  std::string name;              // of the dataset
  std::filesystem::path folder;  // each file there plain or with .gz
  double mean = 0;               // of pixel / 255
  double stddev = 1;
  std::string when_missing;  // what to do about a missing file
};

[[nodiscard]] std::unique_ptr<Dataset> open_idx_dataset(const IdxFolder& source, Split split);

// The four file names, without .gz: images and labels of train, then of test.
[[nodiscard]] std::vector<std::string> idx_file_names();

}  // namespace sluice::data
