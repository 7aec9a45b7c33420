// sample_reader: samples of a data set as tensors. Threads: const, any number at once; no parallel region of ATen
// (OpenMP). Errors: those of Dataset::read, with the sample's name. With skips_broken, the next readable sample and its
// target replace a broken picture; after kMostBroken consecutive ones it is an error.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <tuple>
#include <vector>

#include "data/augment.h"
#include "data/broken_files.h"
#include "data/color_view.h"
#include "data/dataset.h"
#include "data/fields.h"
#include "data/image_sizer.h"
#include "data/mask_tokens.h"
#include "data/team.h"

namespace sluice::data {

struct SampleReaderOptions {
  SizeOptions sizes;
  AugmentOptions augment;  // leave it off for evaluation
  std::int64_t views = 0;  // number of augmented views of a sample, used in turn; 0: a new one in each epoch
  std::uint64_t seed = 0;
  at::ScalarType dtype = at::kFloat;  // of images: at::kFloat or at::kDouble
  bool skips_broken = false;          // false: a picture that cannot be read is an error
  bool gives_bytes = false;           // of images without erasing: see Samples::pixel_scale
  bool pins = false;                  // in pinned memory, for asynchronous copies to GPUs
  MaskOptions masking = {};           // of tokens, with a new mask in each epoch; share 0: none are masked
};

struct Samples {
  // inputs: [n, channels, height, width], targets: [n] int64; or what Dataset::read_fields() gives.
  Fields fields;
  // Defined if the `inputs` are uint8: [3, channels] of SampleReaderOptions::dtype. The normalised input is (pixel /
  // row 0 - row 1) / row 2, with each step rounded.
  at::Tensor pixel_scale = {};

  [[nodiscard]] const at::Tensor& at(const std::string& field) const { return fields.at(field); }
};

class SampleReader {
 public:
  static constexpr std::int64_t kMostBroken = 100;

  // `dataset` must outlive the reader.
  SampleReader(const Dataset& dataset, const SampleReaderOptions& options);

  [[nodiscard]] const Dataset& dataset() const { return dataset_; }

  // The view of all samples in an epoch (FeatureKey::view). Equal numbers give bit-equal inputs.
  [[nodiscard]] int view_in(std::int64_t epoch) const;
  [[nodiscard]] bool is_repeated(std::int64_t epoch, std::int64_t epochs) const;

  // without_inputs[i]: only the target of sample i is read; its inputs are NaN (as bytes 0). Tokens are always read.
  // After a requested stop the result is unfinished. team: helps to decode; may be null.
  [[nodiscard]] Samples read(std::span<const std::int64_t> ids, int view, const std::vector<bool>& without_inputs = {},
                             const std::stop_token& stop = {}, Team* team = nullptr) const;

 private:
  [[nodiscard]] bool has_views() const { return options_.augment.has_views() || options_.masking.share > 0; }
  // Random erasing writes normalised zeros, which bytes cannot represent.
  [[nodiscard]] bool gives_bytes() const { return options_.gives_bytes && options_.augment.erasing == 0; }
  [[nodiscard]] at::Tensor make_pixel_scale() const;
  template <typename T>
  void read_images(std::span<const std::int64_t> ids, int view, const std::vector<bool>& without_inputs,
                   const Fields& fields, const std::stop_token& stop, Team* team) const;
  template <typename T>
  void write_view(std::int64_t id, int view, std::span<std::uint8_t> pixels, std::span<T> out) const;
  std::int64_t read_picture(std::int64_t index, int view, std::span<std::uint8_t> pixels) const;
  [[nodiscard]] Samples read_fields(std::span<const std::int64_t> ids, int view) const;

  const std::shared_ptr<const Dataset> owner_;  // null: the caller keeps the data set alive
  const Dataset& dataset_;
  const SampleReaderOptions options_;
  const ImageSizer sizer_;
  const std::shared_ptr<BrokenFiles> broken_ = std::make_shared<BrokenFiles>();
  const ColorView colors_;
  const std::tuple<ViewWriter<float>, ViewWriter<double>, ViewWriter<std::uint8_t>> writers_;
  const at::Tensor pixel_scale_;
};

}  // namespace sluice::data
