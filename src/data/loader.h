// loader: whole batches in the order of the sampler, made ahead of time by loader threads, which decode the pictures of
// the earliest unfinished batch together.
// Batches are bit-equal for any number of threads, and a loader that starts at a position continues exactly what one
// from the beginning would have given there. Loader threads run no parallel region of ATen (OpenMP) and touch no
// device, but for memory that they have pinned. Threads: next() and the destructor from one thread. The destructor
// waits for at most one read() per thread, and no longer than wait_limit; a read() that hangs is abandoned. Errors:
// what Dataset::read throws leaves next() once, when its batch is due, with the sample named and its exit code kept;
// the loader is then at its end and next() must not be called again. DataError when no batch comes in time.
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

// The batch to begin with; batch may equal the batches of an epoch, which means the next epoch.
struct Position {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;
};

// This process's share of one global batch. On the CPU; the tensors belong to the receiver.
struct Batch {
  // [n, channels, height, width], LoaderOptions::dtype, or uint8 with a pixel_scale; tokens: [n, context] int64.
  at::Tensor inputs;
  // [n] int64; mixed: [n, classes], LoaderOptions::dtype; tokens: [n, context], the inputs one position further on.
  at::Tensor targets;
  at::Tensor sample_ids;         // [n] int64, indices into the dataset
  std::int64_t epoch = 0;        // from 0
  std::int64_t batch = 0;        // from 0 in its epoch
  std::int64_t batches = 0;      // of an epoch
  std::int64_t global_size = 0;  // samples of the batch over all processes; n of them are here
  int view = 0;                  // of its samples, SampleReader::view_in()
  bool view_repeats = true;      // in a later epoch of LoaderOptions::epochs
  // [i]: the inputs of sample i are not read and are NaN, because LoaderOptions::features has what frozen layers make
  // of them. Empty: all are read.
  std::vector<bool> without_inputs;
  at::Tensor pixel_scale;  // Samples::pixel_scale
};

// Where a loader goes on that shall continue after this batch.
[[nodiscard]] inline Position position_after(const Batch& batch) { return {batch.epoch, batch.batch + 1}; }

struct LoaderOptions {
  std::int64_t batch_size = 32;       // global: over all replicas of all processes
  Share share;                        // the replicas this process loads for
  int threads = 1;                    // 0: load in the calling thread
  int prefetch = 4;                   // batches ahead of the consumer; below `threads` some of them idle
  bool endless = true;                // training: epoch after epoch; false: to the end of the first epoch
  bool shuffle = true;                // false: 0 .. size-1
  std::int64_t shard_window = 0;      // of shard_order(), which comes in the place of epoch_order(); 0: it does not
  SizeOptions sizes;                  // SampleReaderOptions
  AugmentOptions augment;             // likewise
  std::int64_t views = 0;             // likewise
  MixOptions mix;                     // of the samples of a batch; leave it off for evaluation
  std::uint64_t seed = 0;             // of the order and of the augmentation
  at::ScalarType dtype = at::kFloat;  // likewise
  bool skips_broken = false;          // likewise
  std::int64_t epochs = 1;            // of the run, for Batch::view_repeats
  // Images whose features it has are not read. When an epoch begins it is told which training samples come; those of an
  // evaluation, which may come in between, would take the place of that list. null: none.
  std::shared_ptr<FeatureCache> features = nullptr;
  // For GPUs: inputs, targets and sample ids lie in pinned memory; and images come as bytes, a quarter of what is
  // copied, which the device normalises. Not where something is done to what is normalised: erasing, mixup, CutMix.
  bool pins = false;
  bool gives_bytes = false;
  // Each process takes the same samples in every epoch, as far as its share of each batch allows (samples_at_home()).
  bool keeps_samples_local = false;

  [[nodiscard]] SampleReaderOptions reading() const {
    return {sizes, augment, views, seed, dtype, skips_broken, gives_bytes && !mix.is_any(), pins};
  }
  std::chrono::seconds wait_limit{300};  // longest wait for one batch
};

class Loader {
 public:
  // `dataset` must outlive the loader. One that a shared_ptr owns also lives as long as a read() that was abandoned;
  // any other must then live as long as the process. Throws ConfigError for options out of range, DataError for an
  // empty dataset.
  Loader(const Dataset& dataset, const LoaderOptions& options, Position start = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch; empty at the end of the pass (never when endless).
  std::optional<Batch> next();
  [[nodiscard]] std::int64_t batches() const;  // of an epoch

 private:
  class BatchMaker;
  std::shared_ptr<BatchMaker> maker_;
  bool has_begun_ = false;
  Prefetcher<Batch> prefetcher_;
};

}  // namespace sluice::data
