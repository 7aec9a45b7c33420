// slow_layers: the command line of Sluice with a model whose layers sleep, so that a test says how long each of them
// takes whatever else the machine does: model.name = "sleepers", four layers.
// SLEEP_FORWARD_MS, SLEEP_BACKWARD_MS: of each layer for each micro-batch, "5,5,10,5".
// SLOWER_FILE: while the file is there, sleeps are as many times longer as it says. SLOWER_LAST: only those of the
// device that has the last layer.
// data.name = "drowsy": noise. SLOW_DATA_FILE: while the file is there, each sample takes so many ms.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/custom_function.h>

#include "app/program.h"
#include "core/concat.h"
#include "data/dataset.h"
#include "nn/linear.h"

namespace {

using namespace sluice;

constexpr int kLayers = 4;
constexpr std::int64_t kWidth = 64;

std::vector<double> milliseconds(const char* name) {
  std::vector<double> times;
  const char* const text = std::getenv(name);
  std::istringstream in(text != nullptr ? text : "");
  for (std::string one; std::getline(in, one, ',');) times.push_back(std::atof(one.c_str()));
  times.resize(kLayers);
  return times;
}

void sleep_ms(double time) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(time)); }

// The number in the file that the environment variable names; `otherwise` if there is no such file.
double number_in_file_of(const char* variable, double otherwise) {
  const char* const file = std::getenv(variable);
  double number = otherwise;
  if (file != nullptr) std::ifstream(file) >> number;
  return number > 0 ? number : otherwise;
}

std::atomic<std::thread::id> thread_of_last_layer;

void sleep_layer(double time) {
  static const bool slows_all = std::getenv("SLOWER_LAST") == nullptr;
  const bool is_slow = slows_all || thread_of_last_layer.load() == std::this_thread::get_id();
  sleep_ms(time * (is_slow ? number_in_file_of("SLOWER_FILE", 1) : 1));
}

// Its input; sleeps in forward and in backward.
struct Sleep : torch::autograd::Function<Sleep> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, double there, double back) {
    context->saved_data["back"] = back;
    sleep_layer(there);
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    sleep_layer(context->saved_data["back"].toDouble());
    return {gradients[0], at::Tensor(), at::Tensor()};
  }
};

class Sleeper : public nn::RegisteredLayer {
 public:
  Sleeper(int number, std::int64_t in, std::int64_t out, const nn::LayerOptions& options)
      : RegisteredLayer(concat("sleeper", number), options),
        is_last_(number + 1 == kLayers),
        linear_(registry_, concat("sleeper", number), in, out, nn::LinearInit::torch_default(in)),
        forward_ms_(milliseconds("SLEEP_FORWARD_MS")[number]),
        backward_ms_(milliseconds("SLEEP_BACKWARD_MS")[number]) {}
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    if (is_last_) thread_of_last_layer = std::this_thread::get_id();
    return Sleep::apply(linear_(x.flatten(1), context), forward_ms_, backward_ms_);
  }

 private:
  bool is_last_;
  nn::Linear linear_;
  double forward_ms_, backward_ms_;
};

models::Layers make_sleepers(const models::ModelOptions& options) {
  const nn::LayerOptions layer = models::layer_options(options);
  std::int64_t width = std::int64_t{options.channels} * options.image_size * options.image_size;
  models::Layers layers;
  for (int number = 0; number < kLayers; ++number) {
    const std::int64_t out = number + 1 == kLayers ? options.classes : kWidth;
    layers.push_back(std::make_unique<Sleeper>(number, std::exchange(width, out), out, layer));
  }
  return layers;
}

class Drowsy : public data::Dataset {
 public:
  Drowsy(const data::DatasetOptions& options, data::Split split)
      : shapes_(data::open_dataset({.name = "shapes", .samples = options.samples, .image_size = options.image_size},
                                   split)) {}
  [[nodiscard]] const data::DatasetInfo& info() const override { return shapes_->info(); }
  [[nodiscard]] std::int64_t size() const override { return shapes_->size(); }
  [[nodiscard]] std::int64_t target(std::int64_t index) const override { return shapes_->target(index); }
  void read(std::int64_t index, std::span<std::uint8_t> sample) const override {
    sleep_ms(number_in_file_of("SLOW_DATA_FILE", 0));
    shapes_->read(index, sample);
  }

 private:
  std::unique_ptr<data::Dataset> shapes_;
};

}  // namespace

int main(int argc, char** argv) {
  models::Family family;
  family.name = "sleepers";
  family.make = make_sleepers;
  data::DatasetEntry drowsy;
  drowsy.description.name = "drowsy";
  drowsy.open = [](const data::DatasetOptions& options, data::Split split) {
    return std::make_unique<Drowsy>(options, split);
  };
  return app::run_program(argc, argv, {.models = {family}, .datasets = {drowsy}});
}
