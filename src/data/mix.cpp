#include "data/mix.h"

#include <algorithm>
#include <cmath>
#include <span>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Dispatch.h>
#include <ATen/EmptyTensor.h>

#include "core/check.h"
#include "core/rng.h"

namespace sluice::data {
namespace {

double draw_beta(double a, std::uint64_t key) {
  const at::Tensor both = at::full({2}, a, at::kDouble);
  return at::_sample_dirichlet(both, at::detail::createCPUGenerator(key))[0].item<double>();
}

// Random box of about 1 - share of the image, as in torchvision's CutMix.
Box draw_box(double share, RngStream& rng, const ImageSize& size) {
  const auto middle_x = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(size.width)));
  const auto middle_y = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(size.height)));
  const double reach = 0.5 * std::sqrt(1 - share);
  const auto half_x = static_cast<std::int64_t>(reach * static_cast<double>(size.width));
  const auto half_y = static_cast<std::int64_t>(reach * static_cast<double>(size.height));
  const std::int64_t left = std::max<std::int64_t>(middle_x - half_x, 0),
                     top = std::max<std::int64_t>(middle_y - half_y, 0);
  const std::int64_t right = std::min(middle_x + half_x, size.width), bottom = std::min(middle_y + half_y, size.height);
  return {.top = top, .left = left, .height = bottom - top, .width = right - left};
}

template <typename T>
void mix_one(std::span<T> own, std::span<const T> before, const Mix& mix, const ImageSize& size) {
  if (!mix.box) {
    const T share = static_cast<T>(mix.share), rest = static_cast<T>(1 - mix.share);
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = own[i] * share + before[i] * rest;
    return;
  }
  const Box& box = *mix.box;
  for (std::int64_t plane = 0; plane < std::ssize(own); plane += size.height * size.width) {
    for (std::int64_t y = box.top; y < box.top + box.height; ++y) {
      const std::int64_t begin = plane + y * size.width + box.left;
      std::copy_n(before.begin() + begin, box.width, own.begin() + begin);
    }
  }
}

// Mixes from the last sample to the first, so that each predecessor is still unchanged.
template <typename T>
void mix_all(const at::Tensor& inputs, const Mix& mix) {
  const auto sample = static_cast<std::size_t>(inputs.stride(0));
  const std::span<T> all(inputs.mutable_data_ptr<T>(), static_cast<std::size_t>(inputs.numel()));
  for (auto i = static_cast<std::size_t>(inputs.size(0) - 1); i > 0; --i) {
    mix_one<T>(all.subspan(i * sample, sample), all.subspan((i - 1) * sample, sample), mix,
               {inputs.size(2), inputs.size(3)});
  }
}

template <typename T>
void write_shares(const at::Tensor& targets, const Mix& mix, const at::Tensor& shares) {
  const std::span classes(targets.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(targets.size(0)));
  check(std::ranges::all_of(classes, [&](std::int64_t c) { return c >= 0 && c < shares.size(1); }),
        "mixed classes within those of the data set");
  auto* row = shares.mutable_data_ptr<T>();
  std::fill_n(row, shares.numel(), T{0});
  for (std::int64_t i = 0; i < shares.size(0); ++i, row += shares.size(1)) {
    row[classes[static_cast<std::size_t>(i) + 1]] += static_cast<T>(mix.share);
    row[classes[static_cast<std::size_t>(i)]] += static_cast<T>(1 - mix.share);
  }
}

}  // namespace

Mix draw_mix(const MixOptions& options, std::uint64_t key, const ImageSize& size) {
  check(options.is_any(), "mixup or CutMix is on");
  RngStream rng(key);
  const bool is_second = rng.below(2) == 1;  // always drawn, so that later numbers do not depend on the options
  const bool cuts = options.mixup == 0 || (options.cutmix > 0 && is_second);
  Mix mix{.share = draw_beta(cuts ? options.cutmix : options.mixup, derive_key(key, 1)), .box = {}};
  if (!cuts) return mix;
  mix.box = draw_box(mix.share, rng, size);
  mix.share = 1 - static_cast<double>(mix.box->height * mix.box->width) / static_cast<double>(size.height * size.width);
  return mix;
}

at::Tensor mix_inputs(const at::Tensor& inputs, const Mix& mix) {
  AT_DISPATCH_FLOATING_TYPES(inputs.scalar_type(), "mix_inputs", [&] { mix_all<scalar_t>(inputs, mix); });
  return inputs.narrow(0, 1, inputs.size(0) - 1);
}

at::Tensor mix_targets(const at::Tensor& targets, const Mix& mix, std::int64_t classes, at::ScalarType dtype,
                       bool pins) {
  at::Tensor shares = at::detail::empty_cpu({targets.size(0) - 1, classes}, dtype, pins);
  AT_DISPATCH_FLOATING_TYPES(dtype, "mix_targets", [&] { write_shares<scalar_t>(targets, mix, shares); });
  return shares;
}

}  // namespace sluice::data
