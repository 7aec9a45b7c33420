// One NaN or infinite value in any parameter makes the loss of the first step NaN or infinite, in every model.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/support.h"

namespace sluice::models::not_finite {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

const nn::ForwardContext kTraining{.training = true};

double loss_of(Model& model, const at::Tensor& inputs, const at::Tensor& targets,
               const nn::ForwardContext& context = kTraining) {
  const at::NoGradGuard no_grad;
  const at::Tensor logits = forward(model, inputs, context);
  return at::cross_entropy_loss(logits.flatten(0, -2), targets.flatten()).item<double>();
}

at::Tensor first_value(at::Tensor tensor) {  // a view, whatever the layout
  while (tensor.dim() > 0) tensor = tensor[0];
  return tensor.detach();
}

void set_first(Model& model, const std::string& name, double value) {
  for (const auto& layer : model.layers) {
    for (nn::Parameter* parameter : layer->parameters()) {
      if (parameter->name == name || parameter->tied_to == name) first_value(parameter->value).fill_(value);
    }
  }
}

class NotFiniteModel : public testing::TestWithParam<std::tuple<const char*, at::ScalarType>> {
 protected:
  void SetUp() override { at::set_num_threads(1); }  // the tensors are tiny
  void TearDown() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

TEST_P(NotFiniteModel, AnyParameterReachesTheLoss) {
  const auto [name, type] = GetParam();
  at::manual_seed(21);
  ModelOptions options = options_of(name);
  options.dtype = type;
  options.image_size = 8;
  if (options.name == "gpt2") options.context = 8;
  Model model = make_model(options);
  const at::Tensor inputs = random_inputs(model, 3, type);
  if (options.name == "gpt2") {
    inputs.select(1, 0).fill_(0);  // the token of the table's first row
  } else {
    first_value(inputs).fill_(1);  // times infinity: nothing that a ReLU takes for negative
  }
  const std::vector<std::int64_t> sizes = options.name == "gpt2" ? inputs.sizes().vec() : std::vector<std::int64_t>{3};
  const at::Tensor targets = at::zeros(sizes, at::kLong);  // a class of which the logit is minus infinity must be one
  ASSERT_TRUE(std::isfinite(loss_of(model, inputs, targets)));
  for (const auto& layer : model.layers) {
    for (const nn::Parameter* parameter : layer->parameters()) {
      if (!parameter->tied_to.empty()) continue;
      const auto before = first_value(parameter->value).item<double>();
      for (const double value : {kNaN, kInfinity}) {
        set_first(model, parameter->name, value);
        EXPECT_FALSE(std::isfinite(loss_of(model, inputs, targets))) << value << " in " << parameter->name;
      }
      set_first(model, parameter->name, before);
    }
  }
}

TEST(NotFiniteResNet, RunningStatisticsReachTheLossOfAnEvaluation) {
  at::manual_seed(23);
  ModelOptions options = options_of("resnet8");
  options.image_size = 8;
  Model model = make_model(options);
  const at::Tensor inputs = random_inputs(model, 3), targets = at::randint(0, model.classes, {3}, at::kLong);
  ASSERT_TRUE(std::isfinite(loss_of(model, inputs, targets, {})));
  for (const auto& layer : model.layers) {
    for (const nn::Buffer* buffer : layer->buffers()) {
      if (!buffer->value.is_floating_point()) continue;
      const at::Tensor first = first_value(buffer->value), before = first.clone();
      first.fill_(kNaN);
      EXPECT_FALSE(std::isfinite(loss_of(model, inputs, targets, {}))) << buffer->name;
      first.copy_(before);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, NotFiniteModel,
                         testing::Combine(testing::Values("resnet8", "vit", "gpt2", "mlp", "toy_cnn"),
                                          testing::Values(at::kFloat, at::kDouble)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + c10::toString(std::get<1>(info.param));
                         });

// VGG's classifier is the dense layer of mlp, so only its features are tested.
TEST(NotFiniteVgg, FeaturesPassItOn) {
  for (const char* name : {"vgg16", "vgg16_bn"}) {
    ModelOptions options = options_of(name);
    options.image_size = 32;
    options.draw_weights = false;
    Model model = make_model(options);
    at::manual_seed(22);
    at::Tensor x = at::randn({2, options.channels, 32, 32}).contiguous(at::MemoryFormat::ChannelsLast);
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < 13; ++i) {  // convolutions
      nn::Layer& layer = *model.layers[i];
      for (nn::Parameter* parameter : layer.parameters()) {
        const auto shape = parameter->value.sizes();
        const at::Tensor drawn = at::randn(shape) * (shape.size() > 1 ? 0.05 : 1);
        parameter->value = shape.size() > 1 ? drawn.contiguous(at::MemoryFormat::ChannelsLast) : drawn;
      }
      const auto is_finite = [&](const at::Tensor& input) {
        return layer.forward(input, kTraining).isfinite().all().item<bool>();
      };
      ASSERT_TRUE(is_finite(x)) << layer.name();
      at::Tensor changed = x.clone();
      changed[1][0][0][0].fill_(kNaN);
      EXPECT_FALSE(is_finite(changed)) << "in the input of " << layer.name();
      for (const nn::Parameter* parameter : layer.parameters()) {
        const at::Tensor first = first_value(parameter->value), before = first.clone();
        first.fill_(kNaN);
        EXPECT_FALSE(is_finite(x)) << parameter->name;
        first.copy_(before);
      }
      x = layer.forward(x, kTraining);
    }
  }
}

}  // namespace
}  // namespace sluice::models::not_finite
