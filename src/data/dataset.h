// dataset: labelled images or sequences of tokens by index, as bytes, and the names a configuration may use for them.
// Not here: the order of the samples (sampler.h), crops, flips and normalisation (augment.h), batches (loader.h).
// Threads: reads are const and may run on any number of threads at once.
// Errors: DataError for files that are missing or damaged; ConfigError for names and options.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample_kind.h"

namespace sluice::data {

enum class Split { kTrain, kTest };
[[nodiscard]] std::string_view name_of(Split split);  // "train", "test"

struct DatasetInfo {
  std::string name;
  Split split = Split::kTrain;
  std::int64_t channels = 0;  // this and the next two: images
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t classes = 0;    // tokens: how many different ones, at most 256
  std::vector<double> mean;    // [channels], of pixel / 255 over the training split
  std::vector<double> stddev;  // [channels], likewise
  SampleKind kind = SampleKind::kImage;
  std::int64_t context = 0;  // tokens of an input; its targets are as many, each one position further on
  // Each image is a file of its own format and size: encoded() has its bytes, height and width are 0.
  bool is_encoded = false;
  bool is_sorted_by_class = false;  // all samples of one class, then all of the next

  [[nodiscard]] std::int64_t pixels() const { return channels * height * width; }
  [[nodiscard]] std::int64_t sample_bytes() const { return kind == SampleKind::kImage ? pixels() : context + 1; }
};

inline constexpr std::int64_t kMostClasses = 1'000'000;  // of data sets that say themselves how many they have

class Dataset : public std::enable_shared_from_this<Dataset> {  // for the loader: see there
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual const DatasetInfo& info() const = 0;
  [[nodiscard]] virtual std::int64_t size() const = 0;

  // Writes one sample: an image's pixels [channels, height, width], or context + 1 tokens in a row, a byte each.
  // Requires: 0 <= index < size(), room for info().sample_bytes().
  virtual void read(std::int64_t index, std::span<std::uint8_t> sample) const = 0;
  // An image's class, 0 .. classes - 1. Not for tokens: a sequence holds its own targets.
  [[nodiscard]] virtual std::int64_t target(std::int64_t index) const;
  // Of data sets that are encoded, which have no read(): the bytes of a picture's file, and the file's name.
  [[nodiscard]] virtual std::vector<std::uint8_t> encoded(std::int64_t index) const;
  [[nodiscard]] virtual std::string file_of(std::int64_t index) const;
  // Where the files begin that samples lie in one after the other, 0 first (tar); empty: they do not.
  [[nodiscard]] virtual std::vector<std::int64_t> shard_begins() const { return {}; }
  // True where read() copies from memory and costs next to nothing.
  [[nodiscard]] virtual bool is_in_memory() const { return false; }
};

struct DatasetOptions {
  std::string name = "shapes";
  std::filesystem::path path;  // folder of the files, or the file itself; empty: the default of that name
  // Use only so many samples of each split, the first ones; of a set that comes by class evenly spaced ones. 0 = all.
  std::int64_t limit = 0;
  std::int64_t samples = 10000;  // synthetic sets only: size of the training split (test: a fifth of it)
  std::int64_t channels = 3;     // synthetic sets only: 1 or 3
  std::int64_t image_size = 32;  // synthetic sets only: height and width, 8 to 1024 pixels
  std::int64_t context = 64;     // sets of tokens only: tokens of an input, 1 to a million
  std::uint64_t seed = 0;        // synthetic sets only
};

[[nodiscard]] std::unique_ptr<Dataset> open_dataset(const DatasetOptions& options, Split split);

// One line of `sluice datasets`.
struct DatasetDescription {
  std::string name;
  std::string what;
  std::filesystem::path default_path;  // empty: none, data.path is required (unless there are no files either)
  std::vector<std::string> files;      // expected below the path; empty: nothing is read, or the path is the file
};
[[nodiscard]] std::vector<DatasetDescription> list_datasets();

// A data set of a program's own (app/program.h): open_dataset() opens it by its name from then on. Before other threads
// begin. ConfigError where there is one of this name already.
struct DatasetEntry {
  DatasetDescription description;
  std::function<std::unique_ptr<Dataset>(const DatasetOptions&, Split)> open;
};
void add_dataset(DatasetEntry entry);

}  // namespace sluice::data
