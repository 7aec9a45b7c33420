#include "data/sample_reader.h"

#include <ATen/Dispatch.h>
#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <limits>
#include <new>
#include <type_traits>

#include "core/concat.h"
#include "core/error.h"
#include "data/feature_key.h"

namespace sluice::data {
namespace {

[[noreturn]] void rethrow_with_sample(const DatasetInfo& info, std::int64_t index) {
  const auto where = concat("sample ", index, " of ", info.name, " (", name_of(info.split), ")");
  try {
    throw;
  } catch (const Error& error) {
    throw error.with_context(where);
  } catch (const std::bad_alloc&) {
    throw OutOfMemoryError(where, ": no memory left to read it; use fewer data.workers or smaller batches");
  } catch (const std::exception& error) {
    throw DataError(where, ": ", error.what());
  }
}

// at::empty without its fill, which would start an OpenMP region under deterministic algorithms.
at::Tensor uninitialized(at::IntArrayRef sizes, at::ScalarType dtype, bool pins) {
  return at::detail::empty_cpu(sizes, dtype, pins);
}

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
  if (!options_.augment.has_views()) return 0;
  return static_cast<int>(options_.views > 0 ? epoch % options_.views : epoch);
}

bool SampleReader::is_repeated(std::int64_t epoch, std::int64_t epochs) const {
  if (dataset_.info().split == Split::kTest) return true;
  if (!options_.augment.has_views()) return epoch + 1 < epochs;
  return options_.views > 0 && epoch + options_.views < epochs;
}

Samples SampleReader::read(std::span<const std::int64_t> ids, int view, const std::vector<bool>& without_inputs,
                           const std::stop_token& stop, Team* team) const {
  if (dataset_.info().kind == SampleKind::kTokens) return read_tokens(ids, stop);
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

Samples SampleReader::read_tokens(std::span<const std::int64_t> ids, const std::stop_token& stop) const {
  const std::int64_t context = dataset_.info().context;
  const auto count = static_cast<std::int64_t>(ids.size());
  const at::Tensor inputs = uninitialized({count, context}, at::kLong, options_.pins);
  const at::Tensor targets = uninitialized({count, context}, at::kLong, options_.pins);
  std::vector<std::uint8_t> tokens(static_cast<std::size_t>(context) + 1);
  auto* input = inputs.mutable_data_ptr<std::int64_t>();
  auto* target = targets.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < ids.size() && !stop.stop_requested(); ++i, input += context, target += context) {
    try {
      dataset_.read(ids[i], tokens);
    } catch (...) {
      rethrow_with_sample(dataset_.info(), ids[i]);
    }
    std::copy(tokens.begin(), tokens.end() - 1, input);
    std::copy(tokens.begin() + 1, tokens.end(), target);
  }
  return {{{kInputs, inputs}, {kTargets, targets}}};
}

}  // namespace sluice::data
