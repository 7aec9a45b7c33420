#include "train/setup/model_options.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "device/device.h"

namespace sluice::train {
namespace {

config::Config with_tf32(bool tf32) {
  config::Config config;
  config.device.tf32 = tf32;
  return config;
}

TEST(LibtorchSettings, Tf32IsAsConfigured) {
  for (const bool tf32 : {false, true, false}) {
    apply_libtorch_settings(with_tf32(tf32));
    EXPECT_EQ(at::globalContext().allowTF32CuBLAS(), tf32);
    EXPECT_EQ(at::globalContext().allowTF32CuDNN(), tf32);
  }
}

TEST(LibtorchSettings, Tf32OnAGpuRoundsProductsAndConvolutions) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "there is no GPU";
  at::manual_seed(1);
  const at::Tensor a = at::randn({256, 512}), b = at::randn({512, 256});
  const at::Tensor x = at::randn({4, 64, 16, 16}), w = at::randn({64, 64, 3, 3});
  const auto error = [](const at::Tensor& found, const at::Tensor& exact) {
    return ((found.cpu().to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
  };
  const at::Tensor product = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  const at::Tensor convolution = at::conv2d(x.to(at::kDouble), w.to(at::kDouble), {}, 1, 1);
  for (const bool tf32 : {false, true}) {
    apply_libtorch_settings(with_tf32(tf32));
    const double of_product = error(at::mm(a.cuda(), b.cuda()), product);
    const double of_convolution = error(at::conv2d(x.cuda(), w.cuda(), {}, 1, 1), convolution);
    EXPECT_EQ(of_product > 1e-5, tf32) << of_product;
    EXPECT_EQ(of_convolution > 1e-5, tf32) << of_convolution;
    EXPECT_LT(std::max(of_product, of_convolution), 1e-2);
  }
  apply_libtorch_settings(with_tf32(false));
}

}  // namespace
}  // namespace sluice::train
