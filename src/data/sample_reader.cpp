#include "data/sample_reader.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/error.h"
#include "data/feature_key.h"

namespace sluice::data {
namespace {

template <typename T>
void write_pixel_scale(const DatasetInfo& info, const at::Tensor& scale) {
  T* out = scale.mutable_data_ptr<T>();
  const auto channels = static_cast<std::size_t>(info.channels);
  std::fill_n(out, channels, T{255});
  for (std::size_t c = 0; c < channels; ++c) {
    out[channels + c] = static_cast<T>(info.mean[c]);
    out[2 * channels + c] = static_cast<T>(info.stddev[c]);
  }
}

}  // namespace

SampleReader::SampleReader(const Dataset& dataset, const SampleReaderOptions& options)
    : owner_(dataset.weak_from_this().lock()),
      dataset_(dataset),
      options_(options),
      sizer_(dataset, options.sizes, options.augment.crop_area),
      colors_(sizer_.info(), options.augment),
      writers_(ViewWriter<float>(sizer_.info(), options.augment), ViewWriter<double>(sizer_.info(), options.augment),
               ViewWriter<std::uint8_t>(sizer_.info(), options.augment)),
      pixel_scale_(make_pixel_scale()) {}

at::Tensor SampleReader::make_pixel_scale() const {
  if (dataset_.info().kind != SampleKind::kImage || !gives_bytes()) return {};
  const at::Tensor scale = uninitialized({3, sizer_.info().channels}, options_.dtype, options_.pins);
  AT_DISPATCH_FLOATING_TYPES(options_.dtype, "pixel_scale", [&] { write_pixel_scale<scalar_t>(sizer_.info(), scale); });
  return scale;
}

int SampleReader::view_in(std::int64_t epoch) const {
  if (dataset_.info().split == Split::kTest) return kTestView;
  if (!has_views()) return 0;
  return static_cast<int>(options_.views > 0 ? epoch % options_.views : epoch);
}

bool SampleReader::is_repeated(std::int64_t epoch, std::int64_t epochs) const {
  if (dataset_.info().split == Split::kTest) return true;
  if (!has_views()) return epoch + 1 < epochs;
  return options_.views > 0 && epoch + options_.views < epochs;
}

Samples SampleReader::read(std::span<const std::int64_t> ids, int view, const std::vector<bool>& without_inputs,
                           const std::stop_token& stop, Team* team) const {
  if (dataset_.info().kind != SampleKind::kImage) return read_fields(ids, view);
  const DatasetInfo& info = sizer_.info();
  const auto count = static_cast<std::int64_t>(ids.size());
  const at::ScalarType type = gives_bytes() ? at::kByte : options_.dtype;
  Samples samples{{{kInputs, uninitialized({count, info.channels, info.height, info.width}, type, options_.pins)},
                   {kTargets, uninitialized({count}, at::kLong, options_.pins)}},
                  pixel_scale_};
  AT_DISPATCH_FLOATING_TYPES_AND(at::kByte, type, "read_images",
                                 [&] { read_images<scalar_t>(ids, view, without_inputs, samples.fields, stop, team); });
  return samples;
}

template <typename T>
void SampleReader::read_images(std::span<const std::int64_t> ids, int view, const std::vector<bool>& without_inputs,
                               const Fields& fields, const std::stop_token& stop, Team* team) const {
  const auto size = static_cast<std::size_t>(sizer_.info().pixels());
  const std::span targets(fields.at(kTargets).mutable_data_ptr<std::int64_t>(), ids.size());
  const std::span inputs(fields.at(kInputs).mutable_data_ptr<T>(), ids.size() * size);
  const auto read_one = [&](std::size_t i, std::vector<std::uint8_t>& pixels) {
    const std::span own = inputs.subspan(i * size, size);
    const bool has_inputs = without_inputs.empty() || !without_inputs[i];
    try {
      targets[i] = dataset_.target(has_inputs ? read_picture(ids[i], view, pixels) : ids[i]);
    } catch (...) {
      rethrow_with_sample(dataset_.info(), ids[i]);
    }
    if (!has_inputs) {
      std::ranges::fill(own, std::numeric_limits<T>::quiet_NaN());  // 0 for bytes
    } else {
      write_view(ids[i], view, pixels, own);
    }
  };
  if (team != nullptr && dataset_.info().is_encoded) {  // samples that are only copied are not worth sharing
    team->run(std::ssize(ids), [&](std::int64_t i) {
      std::vector<std::uint8_t> pixels(size);
      if (!stop.stop_requested()) read_one(static_cast<std::size_t>(i), pixels);
    });
    return;
  }
  std::vector<std::uint8_t> pixels(size);
  for (std::size_t i = 0; i < ids.size() && !stop.stop_requested(); ++i) read_one(i, pixels);
}

template <typename T>
void SampleReader::write_view(std::int64_t id, int view, std::span<std::uint8_t> pixels, std::span<T> out) const {
  const AugmentOptions& augment = options_.augment;
  const auto draw = [&](std::string_view purpose) { return RngStream(view_key(purpose, options_.seed, view, id)); };
  View part = draw_view(augment, options_.seed, view, id);
  if (colors_.is_any()) {
    colors_.apply(pixels, part, draw("colors"));
    part = {.top = augment.crop_padding, .left = augment.crop_padding, .flip = false};
  }
  std::get<ViewWriter<T>>(writers_).write(pixels, part, out);
  if constexpr (std::is_floating_point_v<T>) {
    if (augment.erasing > 0) erase_part(out, {sizer_.info().height, sizer_.info().width}, augment, draw("erasing"));
  }
}

std::int64_t SampleReader::read_picture(std::int64_t index, int view, std::span<std::uint8_t> pixels) const {
  for (std::int64_t next = index;; next = (next + 1) % dataset_.size()) {
    try {
      sizer_.read(next, view_key("crop", options_.seed, view, next), pixels);
      return next;
    } catch (const DataError& error) {
      if (!dataset_.info().is_encoded) throw;
      if (!options_.skips_broken) {
        throw DataError(error.what(),
                        "; repair or remove the file, or set data.broken = \"skip\" to skip broken files");
      }
      broken_->add(next, error.what());
      const std::int64_t tried = std::min(kMostBroken, dataset_.size());
      if (next == (index + tried - 1) % dataset_.size()) {
        throw DataError(tried,
                        " pictures in a row cannot be read, so data.broken = \"skip\" finds no replacement; check "
                        "data.path; the last error: ",
                        error.what());
      }
    }
  }
}

Samples SampleReader::read_fields(std::span<const std::int64_t> ids, int view) const {
  Fields fields = dataset_.read_fields(ids);
  if (options_.masking.share > 0) {
    mask_tokens(fields, options_.masking,
                [&](std::size_t row) { return view_key("mask tokens", options_.seed, view, ids[row]); });
  }
  if (options_.pins) {
    for (auto& [name, field] : fields) {
      const at::Tensor pinned = uninitialized(field.sizes(), field.scalar_type(), /*pins=*/true);
      std::memcpy(pinned.mutable_data_ptr(), field.const_data_ptr(), field.nbytes());
      field = pinned;
    }
  }
  return {std::move(fields)};
}

}  // namespace sluice::data
