// cifar: CIFAR-10 and CIFAR-100 in the binary layout of their authors (not the pickles for Python), held in memory as
// the files have them (154 MB for 50,000 images). A file is records of one label byte (CIFAR-10) or a coarse and a fine
// one (CIFAR-100; the fine one is the target), then 3,072 pixels: the red, green and blue planes, row by row.
// Files may have any number of records. Checked on opening: whole records, every label in its range.
// Errors: DataError.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/cifar_records.h"
#include "data/dataset.h"

namespace sluice::data {

// `folder`: that of the files, or one in which the folder lies that the authors' archive unpacks to.
[[nodiscard]] std::unique_ptr<Dataset> open_cifar(CifarKind kind, const std::filesystem::path& folder, Split split);

// Those of the training split first, in the order of their samples.
[[nodiscard]] std::vector<std::string> cifar_file_names(CifarKind kind);

}  // namespace sluice::data
