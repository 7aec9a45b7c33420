// model_spec: which model to build: the keys of [model] and a part of the cost fingerprint (profiler/fingerprint.h).
#pragma once

#include <string>
#include <vector>

namespace sluice {

struct ModelSpec {
  std::string name = "resnet8";
  std::string size = "tiny";
  std::string file;            // for the name "pt2": a file of scripts/export_model.py
  std::string config;          // for text models: a config.json of Hugging Face; replaces `size`
  std::string task;            // what a text model ends with; empty = what its family is made for
  std::string stem = "cifar";  // for resnet18 and deeper: "cifar" or "imagenet"
  int classes = 0;             // image classes; 0 = from the data, also for the next two
  int channels = 0;
  int image_size = 0;  // pixels; images are square
  int patch_size = 4;
  int vocabulary = 0;           // number of tokens, for token models; 0 = from the size
  int context = 0;              // longest sequence in positions, for token models; 0 = from the size
  double dropout = 0;           // below 0, for text models: the values in `config`
  double stochastic_depth = 0;  // for convnext: drop probability of the last block; earlier blocks have less
  int lora_rank = 0;            // of adapters (nn/lora.h), which are trained instead of the weights; 0 = none
  double lora_alpha = 8;
  double lora_dropout = 0;
  std::vector<std::string> lora_targets;  // linear layers by the last parts of their names; empty = as peft does

  bool operator==(const ModelSpec&) const = default;
};

// Calls visit("name", spec.name) for every key; with several specs: visit(key, member of each).
template <typename Visit, typename... Specs>
void for_each_key(const Visit& visit, Specs&... specs) {
  visit("name", specs.name...);
  visit("size", specs.size...);
  visit("file", specs.file...);
  visit("config", specs.config...);
  visit("task", specs.task...);
  visit("stem", specs.stem...);
  visit("classes", specs.classes...);
  visit("channels", specs.channels...);
  visit("image_size", specs.image_size...);
  visit("patch_size", specs.patch_size...);
  visit("vocabulary", specs.vocabulary...);
  visit("context", specs.context...);
  visit("dropout", specs.dropout...);
  visit("stochastic_depth", specs.stochastic_depth...);
  visit("lora_rank", specs.lora_rank...);
  visit("lora_alpha", specs.lora_alpha...);
  visit("lora_dropout", specs.lora_dropout...);
  visit("lora_targets", specs.lora_targets...);
}

}  // namespace sluice
