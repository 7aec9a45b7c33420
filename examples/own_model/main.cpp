// Two spirals in the plane, told apart by a model of three layers: a data set and a model of this program's own,
// trained by Sluice's command line. `own_model train config.toml --set pipeline.stages=3` is a pipeline of them.
#include <cmath>
#include <memory>
#include <numbers>

#include <ATen/ATen.h>

#include "app/program.h"
#include "nn/linear.h"

using namespace sluice;

// [N, channels, height, width] -> [N, waves]: sines of learned frequencies. Any ATen code that autograd can follow will
// do.
class Waves : public nn::RegisteredLayer {
 public:
  Waves(const std::string& name, std::int64_t inputs, std::int64_t waves, const nn::LayerOptions& options)
      : RegisteredLayer(name, options),
        frequencies_(&registry_.add_parameter(name + ".frequencies", {inputs, waves}, nn::Init::normal(2))) {}
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext&) override {
    return x.flatten(1).matmul(frequencies_->value).sin();
  }

 private:
  nn::Parameter* frequencies_;
};

// [N, in] -> [N, out]. nn::Linear has a split backward, for zero-bubble schedules.
class Dense : public nn::RegisteredLayer {
 public:
  Dense(const std::string& name, std::int64_t in, std::int64_t out, bool is_last, const nn::LayerOptions& options)
      : RegisteredLayer(name, options),
        linear_(registry_, name, in, out, nn::LinearInit::torch_default(in)),
        is_last_(is_last) {}
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return is_last_ ? linear_(x, context) : linear_(x, context).relu();
  }

 private:
  nn::Linear linear_;
  bool is_last_;
};

models::Layers make_waves(const models::ModelOptions& options) {
  const nn::LayerOptions layer = models::layer_options(options);
  const std::int64_t inputs = std::int64_t{options.channels} * options.image_size * options.image_size;
  models::Layers layers;
  layers.push_back(std::make_unique<Waves>("waves", inputs, 32, layer));
  layers.push_back(std::make_unique<Dense>("hidden", 32, 64, /*is_last=*/false, layer));
  layers.push_back(std::make_unique<Dense>("head", 64, options.classes, /*is_last=*/true, layer));
  return layers;
}

// A point is an image of one pixel in two channels: its two coordinates, a byte each.
class Spirals : public data::Dataset {
 public:
  Spirals(std::int64_t samples, data::Split split)
      : samples_(split == data::Split::kTrain ? samples : samples / 5), shift_(split == data::Split::kTrain ? 0 : 0.5) {
    info_ = {.name = "spirals",
             .split = split,
             .channels = 2,
             .height = 1,
             .width = 1,
             .classes = 2,
             .mean = {0.5, 0.5},
             .stddev = {0.25, 0.25}};
  }
  const data::DatasetInfo& info() const override { return info_; }
  std::int64_t size() const override { return samples_; }
  std::int64_t target(std::int64_t index) const override { return index % 2; }
  void read(std::int64_t index, std::span<std::uint8_t> sample) const override {
    const double way = std::sqrt((static_cast<double>(index) + shift_) / static_cast<double>(samples_));
    const double angle = std::numbers::pi * (3 * way + static_cast<double>(target(index)));
    sample[0] = static_cast<std::uint8_t>(std::lround(127.5 + 120 * way * std::cos(angle)));
    sample[1] = static_cast<std::uint8_t>(std::lround(127.5 + 120 * way * std::sin(angle)));
  }

 private:
  data::DatasetInfo info_;
  std::int64_t samples_;
  double shift_;
};

int main(int argc, char** argv) {
  return app::run_program(
      argc, argv,
      {.models = {{.name = "waves", .make = make_waves}},
       .datasets = {
           {.description = {.name = "spirals", .what = "two spirals in the plane", .default_path = {}, .files = {}},
            .open = [](const data::DatasetOptions& options, data::Split split) {
              return std::make_unique<Spirals>(options.samples, split);
            }}}});
}
