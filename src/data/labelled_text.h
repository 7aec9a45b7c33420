// labelled_text: texts or pairs of texts with a label, from the rows of a table. Fields: inputs, mask, types, and
// targets: a class [n] int64, or a number [n] float64. For jsonl also lists of words with a label each: the class of a
// word is the target of its first token, and other tokens have none (kNoTarget) [n, T]; words are joined by spaces.
// Texts that are too long are cut at their end, of a pair the longer one first. Classes are the labels of the training
// split, in order: by value if all are whole numbers. Threads: const, any number. Errors: DataError for files;
// ConfigError for options that cannot work.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/dataset.h"

namespace sluice::data {

// name: jsonl or csv. folder: with train, and test, val, validation, valid or dev, and the ending .jsonl, .csv or .tsv.
[[nodiscard]] std::unique_ptr<Dataset> open_labelled_text(const std::string& name, const std::filesystem::path& folder,
                                                          const TextOptions& options, Split split);

}  // namespace sluice::data
