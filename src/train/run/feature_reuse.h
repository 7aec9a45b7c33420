// feature_reuse: caches the outputs ("rows") of the frozen layers (freeze.cache, data/feature_cache.h), extends them
// when more layers freeze, and reads left-out inputs if their rows are lost. A row depends on the micro-batch of its
// sample's first use, so results differ in the last bits from runs without the cache and after a resume. A row of a
// text has room for data.max_length tokens. Threads: as FeatureSource; the rest from any thread. Errors: those of
// reading samples.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "data/feature_cache.h"
#include "data/sample_reader.h"
#include "pipeline/feature_source.h"
#include "train/setup/setup.h"

namespace sluice::train {

// Decides for "auto" whether keeping rows pays, from the times of the first ones.
class CachePayoff {
 public:
  void add(std::int64_t rows, double made_s, double kept_s);
  // nullopt before enough rows were seen. true: one reuse of a row pays for keeping it.
  [[nodiscard]] std::optional<bool> pays() const;
  [[nodiscard]] std::string in_words() const;

 private:
  std::int64_t calls_ = 0;
  std::int64_t rows_ = 0;
  double made_s_ = 0;
  double kept_s_ = 0;
};

class FeatureReuse final : public pipeline::FeatureSource {
 public:
  explicit FeatureReuse(const Setup& setup);

  [[nodiscard]] Found find(const pipeline::MicroBatch& samples) override;
  using Features = pipeline::FrozenPrefix::Features;
  [[nodiscard]] nn::Tensors complete(const pipeline::MicroBatch& samples, const Found& found,
                                     const Features& made) override;
  void follow(const pipeline::FrozenPrefix* prefix) override;

  [[nodiscard]] const std::shared_ptr<data::FeatureCache>& cache() const { return cache_; }

  // This process's hits and misses since the start, and its current rows and bytes, for the records.
  [[nodiscard]] nlohmann::ordered_json fields() const;

 private:
  enum class Keeping { kNothing, kTrial, kOn };
  struct Rows {
    std::vector<std::int64_t> sizes;
    at::ScalarType type = at::kFloat;
    std::vector<int> inputs = {};  // of the model, which are the features after the first
  };
  [[nodiscard]] nn::Tensors inputs_of(const pipeline::MicroBatch& samples,
                                      const std::vector<std::int64_t>& missing) const;
  [[nodiscard]] bool waits_for_rows() const { return !rows_ && !hashes_.empty() && keeping_ != Keeping::kNothing; }
  [[nodiscard]] bool has_rows() const { return rows_ && keeping_ != Keeping::kNothing; }
  void learn_rows(const Features& made);
  void keep(const std::vector<data::FeatureKey>& keys, const Features& made, double made_s);
  // One call of the trial: keeps the rows and fetches them again.
  void try_out(const std::vector<data::FeatureKey>& keys, const at::Tensor& made, double made_s);
  void forget();
  // Whether added layers need the samples of kept rows: for their lengths, or for inputs such as the mask.
  [[nodiscard]] bool needs_samples() const { return widest_ > 0 || !rows_->inputs.empty(); }
  // Runs the layers from `from` on rows of `keys`. If they need samples, the keys are of one view.
  [[nodiscard]] Features run_added_layers(const pipeline::FrozenPrefix& prefix, int from, const at::Tensor& rows,
                                          std::span<const data::FeatureKey> keys) const;
  [[nodiscard]] const data::SampleReader& reader_of(int view) const { return view == data::kTestView ? test_ : train_; }
  // nullopt: the added layers hand on several tensors of their own, which are not cached.
  [[nodiscard]] std::optional<Rows> extended_rows(const Features& one) const;
  void advance(const pipeline::FrozenPrefix& prefix, int from);

  const std::string choice_;
  const int threads_;  // usable while nothing else runs
  const std::shared_ptr<data::FeatureCache> cache_;
  const data::SampleReader train_, test_;
  const bool extends_;                          // kept rows run through newly frozen layers, else they are dropped
  const std::vector<std::string> input_names_;  // of the model
  // Tokens of a kept row, if batches have different widths; a batch takes as many as it has. 0: all have one width.
  const std::int64_t widest_;
  // Shared by users of the cache's rows; exclusive to change the members below, except the counts.
  mutable std::shared_mutex mutex_;
  std::vector<std::string> hashes_;  // [k]: of the first k + 1 frozen layers
  std::optional<Rows> rows_;         // as the cache knows them; nullopt before the first rows
  Keeping keeping_ = Keeping::kNothing;
  CachePayoff payoff_;
  std::atomic<std::int64_t> hits_ = 0, misses_ = 0;
};

void check_feature_reuse(const Setup& setup);

[[nodiscard]] std::shared_ptr<FeatureReuse> make_feature_reuse(const Setup& setup);

[[nodiscard]] data::LoaderOptions with_features(data::LoaderOptions options,
                                                const std::shared_ptr<FeatureReuse>& features);

}  // namespace sluice::train
