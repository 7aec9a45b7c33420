// model_step: samples/s of a full training step of one model in one process and on one CPU device: forward, mean
// cross-entropy, backward, optimizer over flat buffers. The kernels of nn/ are tuned with it; no pipeline, no loader.
// Usage: model_step MODEL [key=value ...]; keys: size classes image_size channels batch threads steps repeats.
// For every line on standard input ("run") it times `steps` steps and prints one JSON object; without input it runs
// `repeats` times. So a driver can let it take turns with a peer (bench/peer_torch.py) in the same minute.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <malloc.h>

#include <chrono>
#include <climits>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <map>
#include <string>

#include "models/model.h"

namespace {

using sluice::models::Model;

struct Setup {
  sluice::models::ModelOptions model;
  std::int64_t batch = 64, threads = 2, steps = 20, repeats = 5;
};

Setup parse(int argc, char** argv) {
  if (argc < 2) throw std::runtime_error("usage: model_step MODEL [key=value ...]");
  Setup setup;
  setup.model.name = argv[1];
  std::map<std::string, std::string> values;
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    values[argument.substr(0, argument.find('='))] = argument.substr(argument.find('=') + 1);
  }
  const auto take = [&](const char* key, auto& into) {
    if (const auto found = values.extract(key)) into = std::stoi(found.mapped());
  };
  if (const auto size = values.extract("size")) setup.model.size = size.mapped();
  take("classes", setup.model.classes);
  take("image_size", setup.model.image_size);
  take("channels", setup.model.channels);
  take("batch", setup.batch);
  take("threads", setup.threads);
  take("steps", setup.steps);
  take("repeats", setup.repeats);
  if (!values.empty()) throw std::runtime_error("unknown key " + values.begin()->first);
  return setup;
}

// Parameters as views into one buffer, gradients into another, so that the optimizer is one fused call.
class Trainer {
 public:
  explicit Trainer(const Setup& setup)
      : model_(make_model(setup.model)), adamw_(setup.model.name == "vit"), batch_(setup.batch) {
    flatten();
    std::vector<std::int64_t> sizes{batch_};
    sizes.insert(sizes.end(), model_.sample_shape.begin(), model_.sample_shape.end());
    images_ = at::randn(sizes);
    targets_ = at::randint(0, model_.classes, {batch_}, at::kLong);
    context_.training = true;
    context_.sample_ids = at::arange(batch_, at::kLong);
  }

  double step() {
    at::Tensor x = images_;
    for (const auto& layer : model_.layers) x = layer->forward(x, context_);
    const at::Tensor loss = at::cross_entropy_loss(x, targets_);
    gradients_.zero_();
    loss.backward();
    update();
    ++context_.step;
    return loss.item<double>();
  }

 private:
  void flatten() {
    std::int64_t total = 0;
    for (const auto& layer : model_.layers) {
      for (const auto* p : layer->parameters()) total += p->value.numel();
    }
    values_ = at::empty({total});
    gradients_ = at::zeros({total});
    first_ = at::zeros({total});
    second_ = at::zeros({total});
    count_ = at::zeros({});
    const c10::AutoGradMode no_grad(false);
    std::int64_t at = 0;
    for (const auto& layer : model_.layers) {
      for (auto* p : layer->parameters()) {
        const at::Tensor old = p->value;
        const auto view = [&](const at::Tensor& flat) { return flat.as_strided(old.sizes(), old.strides(), at); };
        view(values_).copy_(old);
        p->value = view(values_).detach().requires_grad_();
        p->value.mutable_grad() = view(gradients_);
        at += old.numel();
      }
    }
  }

  void update() {
    const c10::AutoGradMode no_grad(false);
    if (adamw_) {
      count_.add_(1);
      at::_fused_adamw_({values_}, {gradients_}, {first_}, {second_}, {}, {count_}, 1e-4, 0.9, 0.999, 0.01, 1e-8, false,
                        false);
    } else {
      at::_fused_sgd_({values_}, {gradients_}, {first_}, 5e-4, 0.9, 0.01, 0, false, false, context_.step == 0);
    }
  }

  Model model_;
  bool adamw_;
  std::int64_t batch_;
  at::Tensor values_, gradients_, first_, second_, count_, images_, targets_;
  sluice::nn::ForwardContext context_;
};

void measure(Trainer& trainer, const Setup& setup) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu_start = std::clock();  // processor time of all threads: what to compare on a busy machine
  double loss = 0;
  for (std::int64_t i = 0; i < setup.steps; ++i) loss = trainer.step();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  std::printf(
      "{\"side\": \"sluice\", \"model\": \"%s\", \"samples_per_s\": %.2f, \"step_ms\": %.3f, \"cpu_ms\": %.3f, "
      "\"loss\": %.5f}\n",
      setup.model.name.c_str(), static_cast<double>(setup.batch * setup.steps) / elapsed.count(),
      1e3 * elapsed.count() / static_cast<double>(setup.steps),
      1e3 * static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC / static_cast<double>(setup.steps), loss);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  // As `sluice` itself does at its start: without it every step pays for thousands of page faults.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
  const Setup setup = parse(argc, argv);
  at::set_num_threads(static_cast<int>(setup.threads));
  at::manual_seed(0);
  Trainer trainer(setup);
  for (std::int64_t i = 0; i < 3; ++i) trainer.step();
  std::string line;
  bool asked = false;
  while (std::getline(std::cin, line)) {
    asked = true;
    measure(trainer, setup);
  }
  for (std::int64_t i = 0; !asked && i < setup.repeats; ++i) measure(trainer, setup);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "model_step: %s\n", error.what());
  return 2;
}
