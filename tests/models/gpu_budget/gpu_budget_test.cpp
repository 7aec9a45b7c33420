// The GPU path of whole models without a GPU: kernels, waits and written bytes of a step, which
// docs/results/gpu_budget.md lists. SLUICE_PRINT_WORK=1 also prints the operators.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/concat.h"
#include "core/text.h"
#include "models/gpu_budget/meta_work.h"
#include "models/model.h"
#include "optim/clip_norm.h"
#include "optim/optimizer.h"
#include "pipeline/flat_parameters.h"
#include "task/task.h"

namespace sluice::models {
namespace {

struct Case {
  const char* name;  // in the table
  ModelSpec model;
  std::int64_t samples = 1, tokens = 0;
  const char* optimizer;
};

std::vector<Case> cases() {
  return {
      {.name = "ViT-B/16, 128 images",
       .model = {.name = "vit", .size = "base", .classes = 1000, .channels = 3, .image_size = 224, .patch_size = 16},
       .samples = 128,
       .optimizer = "adamw"},
      {.name = "ResNet-50, 256 images",
       .model = {.name = "resnet50", .stem = "imagenet", .classes = 1000, .channels = 3, .image_size = 224},
       .samples = 256,
       .optimizer = "momentum"},
      {.name = "GPT-2 small, 16 texts",
       .model = {.name = "gpt2", .size = "small", .vocabulary = 50257},
       .samples = 16,
       .tokens = 1024,
       .optimizer = "adamw"}};
}

class Step {
 public:
  explicit Step(const Case& of) : case_(of) {
    ModelOptions options(of.model);
    options.in_bf16 = true;
    options.draw_weights = false;
    model_ = make_model(options);
    flat_ = std::make_unique<pipeline::FlatParameters>(model_.layers, ParamId{0}, at::kMeta, nullptr);
  }

  // {forward, backward, loss with its gradient, count of hits, norm and update}
  std::map<std::string, meta::Work> run() {
    std::map<std::string, meta::Work> parts;
    meta::WorkCount count;
    const auto& options = at::TensorOptions().device(at::kMeta);
    nn::Tensors border{case_.tokens > 0 ? at::empty({case_.samples, case_.tokens}, options.dtype(at::kLong))
                                        : at::empty({case_.samples, 3, 224, 224},
                                                    options.memory_format(at::MemoryFormat::ChannelsLast))};
    const at::Tensor targets = at::empty_like(border[0], options.dtype(at::kLong));
    const at::Tensor classes = case_.tokens > 0 ? targets : at::empty({case_.samples}, options.dtype(at::kLong));
    const nn::ForwardContext context{.training = true,
                                     .sample_ids = at::empty({case_.samples}, options.dtype(at::kLong))};
    static_cast<void>(count.take());
    for (const auto& layer : model_.layers) border = layer->forward_all(border, context);
    parts["forward"] = count.take();
    const auto task = case_.tokens > 0 ? task::make_language_model() : task::make_classification();
    const at::Tensor logits = border[0].detach().requires_grad_();
    const at::Tensor loss = task->loss({logits}, {classes});
    const auto of_logits = torch::autograd::grad({loss}, {logits});
    parts["loss"] = count.take();
    static_cast<void>(task->count({logits.detach()}, {classes}));
    parts["hits"] = count.take();
    flat_->begin_gradients();
    torch::autograd::backward({border[0]}, of_logits);
    flat_->settle_gradients();
    parts["backward"] = count.take();
    update(count);
    parts["update"] = count.take();
    return parts;
  }

 private:
  // With clipping and without decay of norms and biases, as the recipes in configs/.
  void update(meta::WorkCount& count) const {
    std::vector<optim::UpdateRange> ranges;
    for (const pipeline::ParameterEntry& entry : flat_->entries()) {
      const bool decays = entry.role == nn::ParameterRole::kWeight;
      if (entry.tied_to.empty())
        ranges.push_back({.begin = entry.begin, .end = entry.begin + entry.numel, .decays = decays});
    }
    optim::Optimizer optimizer({.kind = case_.optimizer, .weight_decay = 0.05}, flat_->values(), flat_->gradients(),
                               std::move(ranges));
    static_cast<void>(count.take());  // of the optimizer's states
    static_cast<void>(optim::sum_of_squares(flat_->gradients()));
    optimizer.begin_step();
    optimizer.update(0.1, 2.0, {});
  }

  Case case_;
  Model model_;
  std::unique_ptr<pipeline::FlatParameters> flat_;
};

std::string row_of(const Case& one) {
  Step step(one);
  std::map<std::string, meta::Work> parts = step.run();
  std::string row = concat("| ", one.name, " | ");
  double bytes = 0, of_products = 0;
  std::int64_t waits = 0;
  for (const char* part : {"forward", "backward", "loss", "hits", "update"}) {
    const meta::Work& work = parts[part];
    row += concat(work.launches, " | ");
    bytes += work.bytes;
    of_products += work.product_bytes;
    waits += work.waits;
    if (std::getenv("SLUICE_PRINT_WORK") == nullptr) continue;
    std::cout << one.name << ", " << part << ": " << work.launches << " launches, " << work.bytes / 1e9 << " GB\n";
    for (const auto& [name, calls] : work.by_name) std::cout << "  " << calls << " " << name << "\n";
  }
  return row + concat(waits, " | ", fixed(bytes / 1e9, 1), " | ", fixed(of_products / 1e9, 1), " |");
}

std::vector<std::string> lines_of(const std::string& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(GpuBudget, IsThatOfTheDocs) {
  const char* root = std::getenv("SLUICE_SOURCE_DIR");
  ASSERT_NE(root, nullptr);
  const std::vector<std::string> known = lines_of(concat(root, "/docs/results/gpu_budget.md"));
  for (const Case& one : cases()) {
    const std::string row = row_of(one);
    EXPECT_NE(std::ranges::find(known, row), known.end()) << "docs/results/gpu_budget.md lacks\n" << row;
  }
}

}  // namespace
}  // namespace sluice::models
