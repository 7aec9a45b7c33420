// split_files: finds the files of a split, and checks the options of texts. Errors: ConfigError and DataError.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace sluice::data {

// The one file of a split in a folder. train, test: names that it may have, in order of preference.
[[nodiscard]] std::filesystem::path split_file(const std::filesystem::path& folder, Split split,
                                               const std::vector<std::string>& train,
                                               const std::vector<std::string>& test);

// train with one of the endings, or test, val, validation, valid or dev.
[[nodiscard]] std::filesystem::path table_file(const std::filesystem::path& folder, Split split,
                                               const std::vector<std::string>& endings);

// A tokenizer is set, and lengths are within limits. name: of the data set.
void check_text_options(const TextOptions& options, const std::string& name);

}  // namespace sluice::data
