// pictures: what data sets of picture files have in common. Values only. Not here: formats (image/decode.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "data/dataset.h"

namespace sluice::data {

inline constexpr std::int64_t kMostPictureBytes = std::int64_t{256} << 20;  // of a file

[[nodiscard]] inline DatasetInfo info_of_pictures(std::string name, Split split, std::int64_t classes) {
  return {.name = std::move(name),
          .split = split,
          .channels = 3,
          .classes = classes,
          .mean = {0.485, 0.456, 0.406},  // of ImageNet, which torchvision's models are trained with
          .stddev = {0.229, 0.224, 0.225},
          .is_encoded = true};
}

}  // namespace sluice::data
