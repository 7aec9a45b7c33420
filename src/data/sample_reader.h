// sample_reader: samples of a data set as tensors: images as normalised views (image_sizer.h, augment.h), tokens with
// the targets that follow them. Not here: which samples come when (sampler.h), ahead of time (loader.h). Threads:
// const, any number at once; no parallel region of ATen (OpenMP). Errors: what Dataset::read throws, with the sample
// named and its exit code kept. With skips_broken the next sample that can be read takes the place of a broken picture,
// and its target; after kMostBroken in a row it is an error.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "data/augment.h"
#include "data/broken_files.h"
#include "data/color_view.h"
#include "data/dataset.h"
#include "data/image_sizer.h"
#include "data/team.h"

namespace sluice::data {

struct SampleReaderOptions {
  SizeOptions sizes;                  // of images
  AugmentOptions augment;             // leave it off for evaluation
  std::int64_t views = 0;             // so many augmented views of a sample, in turn; 0: a new one in each epoch
  std::uint64_t seed = 0;             // of the augmentation
  at::ScalarType dtype = at::kFloat;  // of images; or at::kDouble
  bool skips_broken = false;          // false: a picture that cannot be read is an error
  bool gives_bytes = false;           // of images whose views are done as bytes: Samples::pixel_scale
  bool pins = false;                  // into pinned memory, from which GPUs copy while the host goes on
};

struct Samples {
  at::Tensor inputs;   // [n, channels, height, width]; tokens: [n, context] int64. On the CPU
  at::Tensor targets;  // [n] int64; tokens: [n, context]
  // Where the inputs are uint8, the pixels of the views as they are: [3, channels] of SampleReaderOptions::dtype, so
  // that (pixel / row 0 - row 1) / row 2, each step rounded, is what they would have been. Else undefined.
  at::Tensor pixel_scale = {};
};

class SampleReader {
 public:
  static constexpr std::int64_t kMostBroken = 100;

  // As Loader about the life of `dataset`.
  SampleReader(const Dataset& dataset, const SampleReaderOptions& options);

  [[nodiscard]] const Dataset& dataset() const { return dataset_; }

  // Which view of its samples an epoch takes: the same number, the same inputs bit for bit. FeatureKey::view.
  [[nodiscard]] int view_in(std::int64_t epoch) const;
  // Whether a later one of `epochs` takes the view of this epoch once more.
  [[nodiscard]] bool is_repeated(std::int64_t epoch, std::int64_t epochs) const;

  // without_inputs: [i] true: only the target is needed; the pixels are not read, the inputs are NaN (as bytes 0).
  // Empty: all are read. Tokens are read in any case, since they hold the targets. On a requested stop it is
  // unfinished. team: who helps to decode pictures; null: nobody.
  [[nodiscard]] Samples read(std::span<const std::int64_t> ids, int view, const std::vector<bool>& without_inputs = {},
                             const std::stop_token& stop = {}, Team* team = nullptr) const;

 private:
  // Random erasing writes normalised zeros: there is no byte for them.
  [[nodiscard]] bool gives_bytes() const { return options_.gives_bytes && options_.augment.erasing == 0; }
  [[nodiscard]] at::Tensor make_pixel_scale() const;
  template <typename T>
  void read_images(std::span<const std::int64_t> ids, int view, const std::vector<bool>& without_inputs,
                   const Samples& samples, const std::stop_token& stop, Team* team) const;
  // The view of one sample; `pixels` as stored or sized.
  template <typename T>
  void write_view(std::int64_t id, int view, std::span<std::uint8_t> pixels, std::span<T> out) const;
  // Which sample it is of: `index`, or the one that takes its place.
  std::int64_t read_picture(std::int64_t index, int view, std::span<std::uint8_t> pixels) const;
  [[nodiscard]] Samples read_tokens(std::span<const std::int64_t> ids, const std::stop_token& stop) const;

  const std::shared_ptr<const Dataset> owner_;  // empty: the caller keeps the dataset
  const Dataset& dataset_;
  const SampleReaderOptions options_;
  const ImageSizer sizer_;
  const std::shared_ptr<BrokenFiles> broken_ = std::make_shared<BrokenFiles>();
  const ColorView colors_;
  const ViewWriter<float> floats_;
  const ViewWriter<double> doubles_;
  const ViewWriter<std::uint8_t> bytes_;
  const at::Tensor pixel_scale_;  // undefined where no bytes are given
};

}  // namespace sluice::data
