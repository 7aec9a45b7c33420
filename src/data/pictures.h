// pictures: shared parts of the data sets of picture files.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/concat.h"
#include "core/log.h"
#include "core/text.h"
#include "data/dataset.h"

namespace sluice::data {

inline constexpr std::int64_t kMostPictureBytes = std::int64_t{256} << 20;

[[nodiscard]] inline DatasetInfo info_of_pictures(std::string name, Split split, std::int64_t classes) {
  return {.name = std::move(name),
          .split = split,
          .channels = 3,
          .classes = classes,
          .mean = {0.485, 0.456, 0.406},  // ImageNet's, which torchvision's models are trained with
          .stddev = {0.229, 0.224, 0.225},
          .is_encoded = true};
}

// Lower-case ending without the dot ("jpg" of "a.b/Photo.JPG"); empty for a name without an ending.
[[nodiscard]] inline std::string ending_of(const std::filesystem::path& file) {
  std::string ending = file.extension().native();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending.empty() ? ending : ending.substr(1);
}

class SkippedFiles {
 public:
  void add(const std::string& file) {
    if (by_ending_.empty()) first_ = file;
    ++by_ending_[ending_of(file)];
  }

  void log(const DatasetInfo& info) const {
    std::int64_t count = 0;
    std::vector<std::string> kinds;
    for (const auto& [ending, files] : by_ending_) {
      count += files;
      kinds.push_back(concat(files, " ", ending.empty() ? "without an ending" : concat("*.", ending)));
    }
    if (count > 0) {
      log_info("data set ", info.name, " (", name_of(info.split), "): ", counted(count, "file"),
               count == 1 ? " holds" : " hold", " no sample: ", join(kinds, ", "), "; the first is ", first_);
    }
  }

 private:
  std::string first_;
  std::map<std::string, std::int64_t> by_ending_;
};

}  // namespace sluice::data
