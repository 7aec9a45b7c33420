// cifar: CIFAR-10 and CIFAR-100 in their authors' binary layout, held in memory. A record is the label bytes
// (CIFAR-100: coarse and fine, which is the target), then 3,072 pixels: the red, green and blue planes. Any number of
// records is accepted. Errors: DataError.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/cifar_records.h"
#include "data/dataset.h"

namespace sluice::data {

// `folder`: contains the files, or the folder that the authors' archive unpacks to.
[[nodiscard]] std::unique_ptr<Dataset> open_cifar(CifarKind kind, const std::filesystem::path& folder, Split split);

// Names of the training files, then of the test files, in the order of their samples.
[[nodiscard]] std::vector<std::string> cifar_file_names(CifarKind kind);

}  // namespace sluice::data
