// dataset: labelled images or token sequences by index, and the data-set names of the configuration. Threads: reads are
// const, any number at once. Errors: DataError for files; ConfigError for names and options.
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
#include "data/fields.h"
#include "data/text_options.h"

namespace sluice::data {

enum class Split { kTrain, kTest };
[[nodiscard]] std::string_view name_of(Split split);

struct DatasetInfo {
  std::string name;
  Split split = Split::kTrain;
  std::int64_t channels = 0;  // channels, height, width: for images
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t classes = 0;  // for tokens: size of the vocabulary
  std::vector<double> mean;  // [channels], of pixel / 255 over the training split
  std::vector<double> stddev;
  SampleKind kind = SampleKind::kImage;
  std::int64_t context = 0;                   // tokens of an input, or the most that it has
  std::vector<FieldInfo> fields = {};         // of tokens; empty: inputs and targets, [context] int64 each
  std::vector<std::string> class_names = {};  // of targets that are classes of texts, in order
  bool has_bytes = true;                      // read() gives samples as bytes
  // Each image is a file with its own format and size: encoded() returns its bytes; height and width are 0.
  bool is_encoded = false;
  bool is_sorted_by_class = false;  // samples of a class are contiguous

  [[nodiscard]] std::int64_t pixels() const { return channels * height * width; }
  [[nodiscard]] std::int64_t sample_bytes() const { return kind == SampleKind::kImage ? pixels() : context + 1; }
  [[nodiscard]] const FieldInfo* field(std::string_view name) const;  // null if the set lacks it
};

inline constexpr std::int64_t kMostClasses = 1'000'000;  // limit for data sets that state their number of classes

class QuestionSet;

class Dataset : public std::enable_shared_from_this<Dataset> {  // owner: see Loader's constructor
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual const DatasetInfo& info() const = 0;
  [[nodiscard]] virtual std::int64_t size() const = 0;

  // If info().has_bytes: writes info().sample_bytes() bytes: pixels [channels, height, width], or context + 1 tokens.
  virtual void read(std::int64_t index, std::span<std::uint8_t> sample) const;
  // Tokens: the fields of samples, each [ids.size(), ...], padded alike. By default inputs and targets from read().
  [[nodiscard]] virtual Fields read_fields(std::span<const std::int64_t> ids) const;
  // Number of tokens of each sample, for batches of similar lengths. Empty: all are alike.
  [[nodiscard]] virtual std::vector<int> lengths() const { return {}; }
  // The questions (squad_dataset.h), owned by the set that was opened; null if it has other samples.
  [[nodiscard]] virtual const QuestionSet* question_set() const { return nullptr; }
  // The sample's number in the set that was opened, if this is a part of it (subset.h).
  [[nodiscard]] virtual std::int64_t sample_in_whole(std::int64_t index) const { return checked(index); }
  // Class of an image, 0 .. classes - 1. Not for tokens, because a sequence contains its targets.
  [[nodiscard]] virtual std::int64_t target(std::int64_t index) const;
  // For encoded data sets, which have no read(): the bytes of a picture's file, and the file's name.
  [[nodiscard]] virtual std::vector<std::uint8_t> encoded(std::int64_t index) const;
  [[nodiscard]] virtual std::string file_of(std::int64_t index) const;
  // First sample of each file, beginning with 0, if files hold many consecutive samples (tar); else empty.
  [[nodiscard]] virtual std::vector<std::int64_t> shard_begins() const { return {}; }
  [[nodiscard]] virtual bool is_in_memory() const { return false; }

 protected:
  // Returns `index`. BugError unless 0 <= index < size().
  [[nodiscard]] std::int64_t checked(std::int64_t index) const;
};

struct DatasetOptions {
  std::string name = "shapes";
  std::filesystem::path path;  // folder of the files, or the file itself; empty: the default of the data set
  // Number of samples to use of each split; 0: all. Takes the first ones, or evenly spaced ones if sorted by class.
  std::int64_t limit = 0;
  std::int64_t samples = 10000;  // synthetic sets: size of the training split (test: a fifth of it)
  std::int64_t channels = 3;     // synthetic sets: 1 or 3
  std::int64_t image_size = 32;  // synthetic sets: height and width, 8 to 1024 pixels
  std::int64_t context = 64;     // token sets: tokens of an input, 1 to a million
  std::uint64_t seed = 0;
  TextOptions text = {};  // sets of texts
};

// In a catch block: throws the error again, with the sample's name.
[[noreturn]] void rethrow_with_sample(const DatasetInfo& info, std::int64_t index);

[[nodiscard]] std::unique_ptr<Dataset> open_dataset(const DatasetOptions& options, Split split);

struct DatasetDescription {
  std::string name;
  std::string what;
  std::filesystem::path default_path;  // empty: data.path is required, unless there are no files
  std::vector<std::string> files;      // expected below the path; empty: no files, or the path is the file
};
[[nodiscard]] std::vector<DatasetDescription> list_datasets();

// Registers a program's own data set (app/program.h) before other threads start. ConfigError if the name exists.
struct DatasetEntry {
  DatasetDescription description;
  std::function<std::unique_ptr<Dataset>(const DatasetOptions&, Split)> open;
};
void add_dataset(DatasetEntry entry);

}  // namespace sluice::data
