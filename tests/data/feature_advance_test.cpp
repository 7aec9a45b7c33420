#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <stdexcept>

#include "core/error.h"
#include "data/feature_cache.h"
#include "data/feature_tensors.h"

namespace sluice::data {
namespace {

using test::fetched;
using test::hits_of;
using test::inputs_of;
using test::keys_between;
using test::kSizes;
using test::same_bits;
using test::stores;

// Layers that keep, shrink and enlarge the rows. Double rows: only their last bits may depend on the batch.
struct NewLayers {
  const char* name;
  std::vector<std::int64_t> sizes;
  at::ScalarType type;
  std::function<at::Tensor(const at::Tensor& rows)> forward;
};

FeatureCache::Forward without_keys(const std::function<at::Tensor(const at::Tensor&)>& forward) {
  return [forward](const at::Tensor& rows, std::span<const FeatureKey> /*keys*/) { return forward(rows); };
}

std::vector<NewLayers> new_layers() {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{9});
  const at::Tensor same = at::randn({3, 3, 3, 3}, generator, at::dtype(at::kDouble));
  const at::Tensor more = at::randn({8, 3, 3, 3}, generator, at::dtype(at::kDouble));
  const auto convolve = [](const at::Tensor& rows, const at::Tensor& weight, std::int64_t stride) {
    return at::relu(at::conv2d(rows, weight, {}, stride, 1));
  };
  return {{"same", kSizes, at::kDouble, [=](const at::Tensor& rows) { return convolve(rows, same, 1); }},
          {"identity", kSizes, at::kDouble, [](const at::Tensor& rows) { return rows; }},
          {"a view", {3, 4, 8}, at::kDouble, [](const at::Tensor& rows) { return rows.slice(2, 2, 6); }},
          {"smaller", {3, 4, 4}, at::kDouble, [=](const at::Tensor& rows) { return convolve(rows, same, 2); }},
          {"larger", {8, 8, 8}, at::kDouble, [=](const at::Tensor& rows) { return convolve(rows, more, 1); }},
          {"type", kSizes, at::kFloat, [](const at::Tensor& rows) { return (rows / 3).to(at::kFloat); }}};
}

TEST(FeatureCache, AdvanceIsWhatAFreshStoreWouldHold) {
  const test::TempDir dir;
  const auto keys = keys_between(0, 100);
  const at::Tensor rows = inputs_of(keys, at::kDouble);
  for (const auto& options : stores(dir)) {
    for (const auto& layers : new_layers()) {
      SCOPED_TRACE(layers.name);
      FeatureCache cache(options);
      cache.use("a", kSizes, at::kDouble);
      cache.store(keys, rows);
      cache.advance("b", layers.sizes, layers.type, without_keys(layers.forward));
      const at::Tensor found = fetched(cache, keys, layers.sizes, layers.type);
      EXPECT_TRUE(at::allclose(found, layers.forward(rows), 1e-12, 1e-12));
      cache.use("b", layers.sizes, layers.type);
      EXPECT_EQ(hits_of(cache, keys, layers.sizes, layers.type), 100);
      cache.use("a", kSizes, at::kDouble);
      EXPECT_EQ(hits_of(cache, keys, kSizes, at::kDouble), 0);
    }
  }
}

TEST(FeatureCache, AdvanceWithBfloat16RoundsOnceMore) {
  const auto keys = keys_between(0, 100);
  const at::Tensor rows = inputs_of(keys);
  FeatureCache cache({.memory_bytes = 1 << 20, .as_bfloat16 = true});
  cache.use("a", kSizes, at::kFloat);
  cache.store(keys, rows);
  cache.advance("b", kSizes, at::kFloat, without_keys([](const at::Tensor& kept) { return kept / 3; }));
  const at::Tensor expected = (rows.to(at::kBFloat16).to(at::kFloat) / 3).to(at::kBFloat16).to(at::kFloat);
  EXPECT_TRUE(same_bits(fetched(cache, keys), expected));
}

TEST(FeatureCache, AnInputThatForwardKeepsStaysWhatItWas) {
  const auto keys = keys_between(0, 100);
  FeatureCache cache({.memory_bytes = 1 << 20});
  cache.use("a", kSizes, at::kFloat);
  cache.store(keys, inputs_of(keys));
  std::vector<at::Tensor> inputs;
  cache.advance("b", kSizes, at::kFloat, [&](const at::Tensor& rows, std::span<const FeatureKey> of_rows) {
    EXPECT_TRUE(same_bits(rows, inputs_of({of_rows.begin(), of_rows.end()})));
    inputs.push_back(rows);
    return rows + 1;
  });
  EXPECT_EQ(at::cat(inputs).size(0), 100);
  EXPECT_TRUE(same_bits(std::get<0>(at::cat(inputs).flatten().sort()), std::get<0>(inputs_of(keys).flatten().sort())));
}

TEST(FeatureCache, AForwardThatFailsLeavesAnEmptyCacheOfTheNewPrefix) {
  const auto keys = keys_between(0, 100);
  FeatureCache cache({.memory_bytes = 1 << 20});
  cache.use("a", kSizes, at::kFloat);
  cache.store(keys, inputs_of(keys));
  EXPECT_THROW(cache.advance("b", {4}, at::kFloat, without_keys([](const at::Tensor&) -> at::Tensor {
                               throw std::runtime_error("out of memory");
                             })),
               std::runtime_error);
  EXPECT_EQ(cache.statistics().rows_in_memory, 0);
  const at::Tensor rows = at::rand({100, 4});
  cache.store(keys, rows);
  cache.use("b", {4}, at::kFloat);
  EXPECT_TRUE(same_bits(fetched(cache, keys, {4}), rows));
}

TEST(FeatureCache, AForwardWithRowsOfAnotherFormatIsABug) {
  const auto keys = keys_between(0, 100);
  FeatureCache cache({.memory_bytes = 1 << 20});
  cache.use("a", kSizes, at::kFloat);
  cache.store(keys, inputs_of(keys));
  EXPECT_THROW(cache.advance("b", {5}, at::kFloat, without_keys([](const at::Tensor& rows) { return rows; })),
               BugError);
  cache.store(keys, at::rand({100, 5}));
  EXPECT_EQ(hits_of(cache, keys, {5}), 100);
}

TEST(FeatureCache, AdvanceIsWithinTheBudgetsAtEachMoment) {
  const test::TempDir dir;
  const auto keys = keys_between(0, 1500);
  const at::Tensor rows = inputs_of(keys, at::kDouble);
  const FeatureCacheOptions options{.memory_bytes = 1 << 20, .disk_bytes = 1 << 20, .directory = dir.path()};
  for (const auto& layers : new_layers()) {
    SCOPED_TRACE(layers.name);
    FeatureCache cache(options);
    cache.use("a", kSizes, at::kDouble);
    cache.store(keys, rows);
    const auto before = cache.statistics();
    ASSERT_GT(before.rows_on_disk, 500);
    std::int64_t rows_seen = 0;
    cache.advance("b", layers.sizes, layers.type, [&](const at::Tensor& piece, std::span<const FeatureKey> of_piece) {
      EXPECT_EQ(std::ssize(of_piece), piece.size(0));
      rows_seen += piece.size(0);
      EXPECT_LE(piece.size(0), 256);
      EXPECT_LE(cache.statistics().memory_bytes, options.memory_bytes);
      EXPECT_LE(cache.statistics().disk_bytes, options.disk_bytes);
      return layers.forward(piece);
    });
    EXPECT_EQ(rows_seen, before.rows_in_memory + before.rows_on_disk);
    EXPECT_LE(cache.statistics().memory_bytes, options.memory_bytes);
    EXPECT_LE(test::size_of(test::unnamed_files(dir.path()).at(0)), options.disk_bytes);
    const auto after = cache.statistics();
    if (c10::multiply_integers(layers.sizes) * c10::elementSize(layers.type) <= 1536) {
      EXPECT_EQ(after.rows_in_memory + after.rows_on_disk, rows_seen);
    }
  }
}

}  // namespace
}  // namespace sluice::data
