// sample_reader: samples of a data set as tensors. Threads: const, any number at once; no parallel region of ATen
// (OpenMP). Errors: those of Dataset::read, with the sample's name. With skips_broken, the next readable sample and its
// target replace a broken picture; after kMostBroken consecutive ones it is an error.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
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
#include "data/image_sizer.h"
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
};

// By name: [n, ...] each, on the CPU.
using Fields = std::map<std::string, at::Tensor, std::less<>>;
inline constexpr const char *kInputs = "inputs", *kTargets = "targets";

struct Samples {
  // inputs: [n, channels, height, width], or tokens [n, context] int64. targets: [n] int64, or the next token at each
  // position [n, context].
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
  // Random erasing writes normalised zeros, which bytes cannot represent.
  [[nodiscard]] bool gives_bytes() const { return options_.gives_bytes && options_.augment.erasing == 0; }
  [[nodiscard]] at::Tensor make_pixel_scale() const;
  template <typename T>
  void read_images(std::span<const std::int64_t> ids, int view, const std::vector<bool>& without_inputs,
                   const Fields& fields, const std::stop_token& stop, Team* team) const;
  template <typename T>
  void write_view(std::int64_t id, int view, std::span<std::uint8_t> pixels, std::span<T> out) const;
  std::int64_t read_picture(std::int64_t index, int view, std::span<std::uint8_t> pixels) const;
  [[nodiscard]] Samples read_tokens(std::span<const std::int64_t> ids, const std::stop_token& stop) const;

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
