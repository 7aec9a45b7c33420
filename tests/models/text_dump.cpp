// text_dump step MODEL TASK FOLDER: one forward and backward pass in float64 on random texts each into plain, padded
// and packed.safetensors for text_models_test.py, and the config.json that is saved beside the weights. MODEL: a
// config.json, or NAME:SIZE.
// text_dump names MODEL TASK: reads lines "NAME SIZE..." of files' tensors, each file followed by an empty line, and
// prints "OUR_NAME SIZE..." for each.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "models/foreign_weights.h"
#include "models/model.h"
#include "safetensors_out.h"

namespace sluice::models {
namespace {

constexpr std::int64_t kTexts = 4, kTokens = 14, kLabels = 3;

ModelOptions options_of(const std::string& model, const std::string& task) {
  ModelOptions options;
  options.dtype = at::kDouble;
  options.classes = kLabels;
  options.task = task;
  if (const std::size_t colon = model.find(':'); colon != std::string::npos) {
    options.name = model.substr(0, colon);
    options.size = model.substr(colon + 1);
    return options;
  }
  options.text = read_text_config(model);
  options.name = family_of(options.text->type);
  return options;
}

// Rows with padding behind, and if a head reads all tokens, also before; or three documents and padding in a row.
at::Tensor random_mask(const std::string& kind, bool may_begin_with_padding) {
  at::Tensor mask = at::ones({kTexts, kTokens}, at::kLong);
  if (kind == "padded") {
    mask[1].narrow(0, 9, 5).zero_();
    mask[2].narrow(0, 1, 13).zero_();
    if (may_begin_with_padding) mask[3].narrow(0, 0, 4).zero_();
  }
  if (kind == "packed") {
    for (std::int64_t i = 0; i < kTexts; ++i) {
      mask[i].narrow(0, 4 + i, 8 - i).fill_(2);
      mask[i].narrow(0, 8 + i, 6 - i).fill_(3);
      if (i > 0) mask[i].narrow(0, 13, 1).zero_();
    }
  }
  return mask;
}

// The number of the token in its document.
at::Tensor positions_of(const at::Tensor& mask) {
  at::Tensor positions = at::zeros_like(mask);
  for (std::int64_t i = 0; i < mask.size(0); ++i) {
    for (std::int64_t t = 1; t < mask.size(1); ++t) {
      if (mask[i][t].item<std::int64_t>() == mask[i][t - 1].item<std::int64_t>())
        positions[i][t] = positions[i][t - 1] + 1;
    }
  }
  return positions;
}

nn::Tensors random_inputs(const TextConfig& config, TextHead head, const std::string& kind, Tensors& all) {
  const bool reads_all = head == TextHead::kLm || head == TextHead::kMlm || head == TextHead::kTokens;
  const at::Tensor mask = random_mask(kind, reads_all);
  const std::int64_t padding = std::max<std::int64_t>(config.padding, 0);
  const at::Tensor tokens = at::randint(padding + 1, config.vocabulary, {kTexts, kTokens}, at::kLong);
  nn::Tensors inputs{tokens.masked_fill(mask.eq(0), padding), {}, {}, {}};
  if (kind != "plain") inputs[1] = mask;
  if (kind != "plain" && config.types > 1) inputs[2] = at::randint(0, config.types, {kTexts, kTokens}, at::kLong);
  if (kind == "packed") inputs[3] = positions_of(mask);
  constexpr std::array kNames{"inputs", "mask", "types", "positions"};
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined()) all[kNames.at(i)] = inputs[i];
  return inputs;
}

nn::Tensors random_targets(const Model& model, TextHead head, const at::Tensor& mask, Tensors& all) {
  nn::Tensors targets;
  for (const TensorInfo& info : model.targets) {
    std::vector<std::int64_t> sizes{kTexts};
    if (!info.sizes.empty()) sizes.push_back(kTokens);
    at::Tensor target = at::randint(0, head == TextHead::kQa ? kTokens : info.bound, sizes, at::kLong);
    if (!info.sizes.empty()) target.masked_fill_(at::rand(sizes) < 0.2, -100);
    if (!info.sizes.empty() && mask.defined()) target.masked_fill_(mask.eq(0), -100);
    if (head == TextHead::kQa && mask.defined()) target.remainder_(mask.sum(1));
    targets.push_back(all[info.name] = target);
  }
  return targets;
}

at::Tensor sum_of_losses(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, -100);
}

void leave_initial_values(const Model& model, Tensors& all) {
  const c10::AutoGradMode no_grad(false);
  for (const auto& layer : model.layers) {
    for (auto* p : layer->parameters()) {
      if (!p->tied_to.empty()) {
        p->value.copy_(all.at("weight/" + p->tied_to));
        continue;
      }
      all["weight/" + p->name] = p->value.add_(at::randn_like(p->value), 0.05);
    }
  }
}

at::Tensor loss_of(TextHead head, const at::Tensor& logits, const nn::Tensors& targets) {
  if (head != TextHead::kQa) return sum_of_losses(logits.flatten(0, -2), targets[0].flatten());
  return (sum_of_losses(logits.select(2, 0), targets[0]) + sum_of_losses(logits.select(2, 1), targets[1])) / 2;
}

void add_gradients(const Model& model, Tensors& all) {
  for (const auto& layer : model.layers) {
    for (const auto* p : layer->parameters()) {
      const std::string name = "grad/" + (p->tied_to.empty() ? p->name : p->tied_to);
      const at::Tensor share = p->value.grad().defined() ? p->value.grad() : at::zeros_like(p->value);
      all[name] = all.contains(name) ? all[name] + share : share;
    }
  }
}

Tensors run(const ModelOptions& options, const std::string& kind) {
  const Model model = make_model(options);
  Tensors all;
  leave_initial_values(model, all);
  const TextHead head = text_head(options);
  nn::Tensors border = random_inputs(text_config(options), head, kind, all);
  const nn::Tensors targets = random_targets(model, head, border[1], all);
  while (!border.back().defined()) border.pop_back();  // a caller may leave out what is not given
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    border = model.layers[i]->forward_all(border, {.training = true, .sample_ids = at::arange(kTexts)});
    if (i % 2 == 0 && i + 1 < model.layers.size()) all[concat("hidden/", i / 2)] = border.front();
  }
  all["logits"] = border.front();
  all["loss"] = loss_of(head, border.front(), targets);
  all["loss"].backward();
  add_gradients(model, all);
  return all;
}

void print(const std::string& name, const at::Tensor& tensor) {
  std::cout << name;
  for (const std::int64_t size : tensor.sizes()) std::cout << " " << size;
  std::cout << "\n";
}

void print_names(const ModelOptions& options) {
  NamedTensors file;
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.empty()) {
      for (const auto& [name, tensor] : to_our_names(options, file, "the file").tensors) print(name, tensor);
      std::cout << "\n";
      file.clear();
      continue;
    }
    std::istringstream words(line);
    std::string name;
    std::vector<std::int64_t> sizes;
    words >> name;
    for (std::int64_t size = 0; words >> size;) sizes.push_back(size);
    file[name] = at::empty(sizes);
  }
}

void dump(const ModelOptions& options, const std::string& folder) {
  const TextHead head = text_head(options);
  const bool has_labels = head == TextHead::kClassify || head == TextHead::kTokens;
  std::ofstream(folder + "/config.json") << config_json(text_config(options), has_labels ? options.classes : 0);
  for (const std::string kind : {"plain", "padded", "packed"}) {
    if (kind == "packed" && (head == TextHead::kClassify || head == TextHead::kQa)) continue;  // one target a row
    at::manual_seed(1);
    write_safetensors(run(options, kind), concat(folder, "/", kind, ".safetensors"));
  }
}

int main_of(const std::vector<std::string>& args) {
  if (args.size() < 3) throw std::runtime_error("usage: text_dump step|names MODEL TASK [FOLDER]");
  at::set_num_threads(1);
  const ModelOptions options = options_of(args[1], args[2]);
  if (args[0] == "names") {
    print_names(options);
  } else {
    dump(options, args.at(3));
  }
  return 0;
}

}  // namespace
}  // namespace sluice::models

int main(int argc, char** argv) try {
  return sluice::models::main_of({argv + 1, argv + argc});
} catch (const std::exception& error) {
  std::fprintf(stderr, "text_dump: %s\n", error.what());
  return 2;
}
