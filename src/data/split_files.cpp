#include "data/split_files.h"

#include "core/error.h"
#include "core/text.h"
#include "data/file.h"

namespace sluice::data {
namespace {

constexpr std::int64_t kMostTokens = 1'000'000;

}  // namespace

std::filesystem::path split_file(const std::filesystem::path& folder, Split split,
                                 const std::vector<std::string>& train, const std::vector<std::string>& test) {
  const std::vector<std::string>& names = split == Split::kTrain ? train : test;
  for (const std::string& name : names) {
    if (is_there(folder / name)) return folder / name;
  }
  if (!is_there(folder)) throw DataError(folder.string(), " does not exist; correct data.path");
  throw DataError(folder.string(), ": has no file of the ", name_of(split), " split; put one there as ",
                  join(names, " or "), ", or correct data.path");
}

std::filesystem::path table_file(const std::filesystem::path& folder, Split split,
                                 const std::vector<std::string>& endings) {
  std::vector<std::string> train, test;
  for (const std::string& ending : endings) {
    train.push_back("train" + ending);
    for (const char* name : {"test", "val", "validation", "valid", "dev"}) test.push_back(name + ending);
  }
  return split_file(folder, split, train, test);
}

void check_text_options(const TextOptions& options, const std::string& name) {
  if (options.tokenizer.empty()) {
    throw ConfigError("data.tokenizer is empty, but data.name = \"", name,
                      "\" needs one; set it to a tokenizer.json, vocab.txt or .model file");
  }
  if (options.max_length < 1 || options.max_length > kMostTokens)
    throw ConfigError("data.max_length = ", options.max_length, "; samples have 1 to ", kMostTokens, " tokens");
}

}  // namespace sluice::data
