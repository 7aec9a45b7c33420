// model_spec: which model, as a value: what a configuration says of it ([model]), what it is made of (models/model.h)
// and what its measured costs hold for (profiler/fingerprint.h). A key is listed here, and in config/schema.cpp with
// its range and what it means. Not here: its weights, its number format.
#pragma once

#include <string>

namespace sluice {

struct ModelSpec {
  std::string name = "resnet8";
  std::string size = "tiny";   // only families that have sizes read it
  std::string stem = "cifar";  // resnet18 and deeper: "cifar" or "imagenet"
  int classes = 0;             // of images; in a configuration 0 = from the data, here and in the next two
  int channels = 0;
  int image_size = 0;  // pixels; images are square
  int patch_size = 4;  // pixels; vit
  int vocabulary = 0;  // tokens; models of tokens; 0 = that of the size
  int context = 0;     // positions, the longest sequence; models of tokens; 0 = that of the size
  double dropout = 0;
  double stochastic_depth = 0;  // convnext: that the last block is left out; less before it

  bool operator==(const ModelSpec&) const = default;
};

// Calls visit("name", spec.name) and so on for every key of one or more specs: visit(key, member of each).
template <typename Visit, typename... Specs>
void for_each_key(const Visit& visit, Specs&... specs) {
  visit("name", specs.name...);
  visit("size", specs.size...);
  visit("stem", specs.stem...);
  visit("classes", specs.classes...);
  visit("channels", specs.channels...);
  visit("image_size", specs.image_size...);
  visit("patch_size", specs.patch_size...);
  visit("vocabulary", specs.vocabulary...);
  visit("context", specs.context...);
  visit("dropout", specs.dropout...);
  visit("stochastic_depth", specs.stochastic_depth...);
}

}  // namespace sluice
