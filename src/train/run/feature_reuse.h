// feature_reuse: what the frozen layers make of the samples of a run, kept as freeze.cache says: ties the feature cache
// (data/feature_cache.h) to the layers and to the data. Says which weights its rows are of, lets them grow with the
// layers, reads the inputs of samples that the loader had left out and whose rows are gone, and with "auto" finds out
// whether keeping pays.
// A row is what the layers made of the sample when it came first, in whatever group it came then. Matrix products
// may round another group otherwise in the last bit; so a run with the cache on ends with other last bits than one
// with it off, and so does a run that was resumed, whose cache is empty.
// Threads: as FeatureSource; the rest from any thread. Errors: those of reading samples.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/clock.h"
#include "data/feature_cache.h"
#include "data/sample_reader.h"
#include "pipeline/feature_source.h"
#include "train/setup/setup.h"

namespace sluice::train {

// Whether keeping rows pays, by what the first ones take ("auto").
class CachePayoff {
 public:
  // Of some rows, in seconds: to run the layers, to keep what they made and to fetch it again.
  void add(std::int64_t rows, double made_s, double kept_s);
  // Nothing before enough rows were seen. true: a row that is used once more has already paid.
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
  // Requires: keeps_features().
  explicit FeatureReuse(const Setup& setup);

  [[nodiscard]] Found find(const pipeline::MicroBatch& samples) override;
  [[nodiscard]] at::Tensor complete(const pipeline::MicroBatch& samples, const Found& found,
                                    const at::Tensor& made) override;
  void follow(const pipeline::FrozenPrefix* prefix) override;

  // For the loader: what it has needs no inputs.
  [[nodiscard]] const std::shared_ptr<data::FeatureCache>& cache() const { return cache_; }

  // This process's, for the records: hits and misses since the start, rows and bytes now.
  [[nodiscard]] nlohmann::ordered_json fields() const;

 private:
  enum class Keeping { kNothing, kTrial, kOn };
  struct Rows {
    std::vector<std::int64_t> sizes;  // of a row
    at::ScalarType type = at::kFloat;
  };
  [[nodiscard]] at::Tensor inputs_of(const pipeline::MicroBatch& samples,
                                     const std::vector<std::int64_t>& missing) const;
  [[nodiscard]] bool waits_for_rows() const { return !rows_ && !hashes_.empty() && keeping_ != Keeping::kNothing; }
  [[nodiscard]] bool has_rows() const { return rows_ && keeping_ != Keeping::kNothing; }
  void learn_rows(const at::Tensor& made);
  void keep(const std::vector<data::FeatureKey>& keys, const at::Tensor& made, double made_s);
  // One call of the trial: keeps the rows and takes them out again.
  void try_out(const std::vector<data::FeatureKey>& keys, const at::Tensor& made, double made_s);
  void forget();
  void advance(const pipeline::FrozenPrefix& prefix, int from);

  const std::string choice_;  // freeze.cache
  const int threads_;         // that this process may use while nothing else runs
  const std::shared_ptr<data::FeatureCache> cache_;
  const data::SampleReader train_, test_;
  // Held by all who use the cache's rows, alone by who changes what follows, but for the counts.
  mutable std::shared_mutex mutex_;
  std::vector<std::string> hashes_;  // [k]: of the first k + 1 frozen layers
  std::optional<Rows> rows_;         // that the cache has been told of; nothing before the first ones are made
  Keeping keeping_ = Keeping::kNothing;
  CachePayoff payoff_;
  std::atomic<std::int64_t> hits_ = 0, misses_ = 0;
};

// ConfigError where the cache has no place for its file.
void check_feature_reuse(const Setup& setup);

// Null where nothing is to be kept.
[[nodiscard]] std::shared_ptr<FeatureReuse> make_feature_reuse(const Setup& setup);

// For a loader that leaves out what is kept.
[[nodiscard]] data::LoaderOptions with_features(data::LoaderOptions options,
                                                const std::shared_ptr<FeatureReuse>& features);

}  // namespace sluice::train
