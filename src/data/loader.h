// loader: loader threads make batches ahead of time, in the sampler's order. All threads together decode the pictures
// of the earliest unfinished batch. Batches are bit-equal for any number of threads and for any start position. Loader
// threads run no parallel region of ATen (OpenMP).
// Threads: next() and the destructor from one thread. The destructor abandons a read() that exceeds wait_limit. Errors:
// an exception of Dataset::read leaves next() once, when its batch is due; DataError if no batch comes in time. After
// either, next() must not be called again.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/augment.h"
#include "data/dataset.h"
#include "data/feature_cache.h"
#include "data/mix.h"
#include "data/prefetch.h"
#include "data/sample_reader.h"
#include "data/sampler.h"

namespace sluice::data {

// First batch; `batch` may equal the batches of an epoch, which means the next epoch.
struct Position {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;
};

// This process's share of a global batch, on the CPU. The tensors belong to the receiver.
struct Batch {
  // As Samples::fields. Images are of LoaderOptions::dtype, or uint8 with a pixel_scale; targets of mixed images are
  // [n, classes] of that type.
  Fields fields;
  at::Tensor sample_ids;  // [n] int64, indices into the data set
  std::int64_t epoch = 0;
  std::int64_t batch = 0;        // number in the epoch, from 0
  std::int64_t batches = 0;      // batches of an epoch
  std::int64_t global_size = 0;  // samples over all processes; n of them are in this process
  std::int64_t first = 0;        // position of this process's first sample in the global batch
  int view = 0;                  // SampleReader::view_in() of the epoch
  bool view_repeats = true;      // true if a later epoch of LoaderOptions::epochs has this view
  // [i]: the `inputs` of sample i are NaN, because LoaderOptions::features has its row. Empty: all inputs were read.
  std::vector<bool> without_inputs;
  at::Tensor pixel_scale;

  [[nodiscard]] std::int64_t samples() const { return sample_ids.size(0); }
  [[nodiscard]] const at::Tensor& at(const std::string& field) const { return fields.at(field); }
};

[[nodiscard]] inline Position position_after(const Batch& batch) { return {batch.epoch, batch.batch + 1}; }

struct LoaderOptions {
  std::int64_t batch_size = 32;  // global: over all replicas of all processes
  Share share;
  int threads = 1;                // 0: load in the calling thread
  int prefetch = 4;               // batches ahead of the consumer; below `threads`, some threads idle
  bool endless = true;            // true: epoch after epoch (training); false: one epoch
  bool shuffle = true;            // false: 0 .. size-1
  std::int64_t shard_window = 0;  // uses shard_order() with this window; 0: epoch_order()
  bool groups_by_length = false;  // uses length_order(), if the data set has lengths
  SizeOptions sizes;
  AugmentOptions augment;  // leave it off for evaluation
  std::int64_t views = 0;  // as in SampleReaderOptions
  MixOptions mix;          // leave it off for evaluation
  std::uint64_t seed = 0;  // of the order and of the augmentation
  at::ScalarType dtype = at::kFloat;
  bool skips_broken = false;  // as in SampleReaderOptions
  std::int64_t epochs = 1;    // epochs of the run, for Batch::view_repeats
  // Cache of frozen features; images with a cached row are not read. Only endless loaders announce samples, so that an
  // evaluation does not replace that list. null: no cache.
  std::shared_ptr<FeatureCache> features = nullptr;
  // For GPUs: pinned memory, and uint8 images that the device normalises (not if erasing, mixup or CutMix are on).
  bool pins = false;
  bool gives_bytes = false;
  // Each process takes the same samples in every epoch, as far as its share of each batch allows (samples_at_home()).
  bool keeps_samples_local = false;

  MaskOptions masking = {};  // of tokens

  [[nodiscard]] SampleReaderOptions reading() const {
    return {sizes, augment, views, seed, dtype, skips_broken, gives_bytes && !mix.is_any(), pins, masking};
  }
  std::chrono::seconds wait_limit{300};
};

// Length that a process pads its part of a batch to, on average over the first epoch; 0 if the samples have no lengths.
[[nodiscard]] double mean_width(const Dataset& dataset, const LoaderOptions& options);

void check_kind(const DatasetInfo& info, const LoaderOptions& options);

class Loader {
 public:
  // `dataset` must outlive the loader. A data set owned by a shared_ptr is kept alive by abandoned reads; any other
  // must live as long as the process. Throws ConfigError for options out of range, DataError for an empty data set.
  Loader(const Dataset& dataset, const LoaderOptions& options, Position start = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  std::optional<Batch> next();
  [[nodiscard]] std::int64_t batches() const;  // of an epoch

 private:
  class BatchMaker;
  std::shared_ptr<BatchMaker> maker_;
  bool has_begun_ = false;
  Prefetcher<Batch> prefetcher_;
};

}  // namespace sluice::data
