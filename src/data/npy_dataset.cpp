#include "data/npy_dataset.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/text.h"
#include "data/file.h"
#include "data/image/image.h"
#include "data/npy.h"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;

enum class Layout { kPlanes, kPixels };  // [channels, height, width] or [height, width, channels]

struct Images {
  std::vector<std::uint8_t> file;
  std::span<const std::uint8_t> values;
  std::int64_t count = 0, channels = 1;
  ImageSize size;
  Layout layout = Layout::kPlanes;

  [[nodiscard]] std::int64_t values_of_one() const { return channels * size.height * size.width; }
};

bool are_channels(std::int64_t size) { return size == 1 || size == 3; }

std::optional<Layout> layout_of(const std::vector<std::int64_t>& shape) {
  if (std::ranges::count(shape, 0) > 0) return std::nullopt;
  if (shape.size() == 3) return Layout::kPlanes;
  if (shape.size() != 4) return std::nullopt;
  if (are_channels(shape[3])) return Layout::kPixels;
  return are_channels(shape[1]) ? std::optional(Layout::kPlanes) : std::nullopt;
}

[[noreturn]] void reject_images(const fs::path& path, const NpyArray& array) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : array.shape) sizes.push_back(concat(size));
  const std::string shape = concat("[", join(sizes, ", "), "]");
  const bool is_positive = std::ranges::count(array.shape, 0) == 0;
  if (array.type == "u1" && array.shape.size() == 4 && is_positive) {
    const bool is_last = array.shape[3] <= array.shape[1];
    reject_file(path.native(),
                concat("images of shape ", shape, " have ", is_last ? array.shape[3] : array.shape[1],
                       " channels; 1 (grey) or 3 (RGB) are allowed"),
                concat("convert the images and save them again; to drop an alpha channel, save images[",
                       is_last ? "..., :3]" : ":, :3]"));
  }
  reject_file(path.native(),
              concat("images must be uint8 of shape [n, height, width], [n, height, width, channels] or "
                     "[n, channels, height, width] with 1 or 3 channels; found ",
                     array.type[0] == 'u' ? "uint" : "int", 8 * (array.type[1] - '0'), " of shape ", shape));
}

Images read_images(const fs::path& path) {
  Images images;
  images.file = read_bytes(path, kMostBytes);
  const NpyArray array = parse_npy(images.file, path.native());
  const std::vector<std::int64_t>& shape = array.shape;
  const std::optional<Layout> layout = layout_of(shape);
  if (array.type != "u1" || !layout) reject_images(path, array);
  images.values = array.bytes;
  images.count = shape[0];
  images.layout = *layout;
  const bool has_channels = shape.size() == 4, is_first = *layout == Layout::kPlanes;
  if (has_channels) images.channels = is_first ? shape[1] : shape[3];
  images.size = has_channels && is_first ? ImageSize{shape[2], shape[3]} : ImageSize{shape[1], shape[2]};
  return images;
}

std::vector<std::int64_t> read_labels(const fs::path& path, const Images& images, std::int64_t classes) {
  const std::vector<std::uint8_t> file = read_bytes(path, kMostBytes);
  const NpyArray array = parse_npy(file, path.native());
  if (array.shape != std::vector{images.count})
    reject_file(path.native(), concat("labels must have shape [", images.count, "], one for each image"));
  std::vector<std::int64_t> labels = whole_numbers(array, path.native());
  const auto wrong = std::ranges::find_if(labels, [&](std::int64_t label) { return label < 0 || label >= classes; });
  if (wrong == labels.end()) return labels;
  reject_file(path.native(), concat("label ", wrong - labels.begin(), " is ", *wrong, ", expected 0 to ", classes - 1));
}

void measure(const Images& images, DatasetInfo& info) {
  std::vector<double> sums(images.channels), squares(images.channels);
  const std::int64_t plane = images.size.height * images.size.width;
  for (std::int64_t i = 0; i < std::ssize(images.values); ++i) {
    const std::int64_t c = images.layout == Layout::kPixels ? i % images.channels : i / plane % images.channels;
    const double value = images.values[i] / 255.0;
    sums[c] += value;
    squares[c] += value * value;
  }
  const auto count = static_cast<double>(images.count * plane);
  for (std::int64_t c = 0; c < images.channels; ++c) {
    const double mean = sums[c] / count, variance = squares[c] / count - mean * mean;
    info.mean.push_back(mean);
    info.stddev.push_back(variance > 1e-8 ? std::sqrt(variance) : 1.0);  // a single colour needs no scaling
  }
}

class NpyDataset final : public Dataset {
 public:
  NpyDataset(DatasetInfo info, Images images, std::vector<std::int64_t> labels)
      : info_(std::move(info)), images_(std::move(images)), labels_(std::move(labels)) {}

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return images_.count; }
  [[nodiscard]] bool is_in_memory() const override { return true; }
  [[nodiscard]] std::int64_t target(std::int64_t index) const override { return labels_[checked(index)]; }
  void read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    check(std::ssize(pixels) == images_.values_of_one(), "a buffer with the size of one image");
    const auto image = images_.values.subspan(checked(index) * pixels.size(), pixels.size());
    if (images_.layout == Layout::kPlanes) {
      std::ranges::copy(image, pixels.begin());
    } else {
      write_planes(image, images_.channels, pixels);
    }
  }

 private:
  DatasetInfo info_;
  Images images_;
  std::vector<std::int64_t> labels_;
};

DatasetInfo info_of(const fs::path& folder, const Images& train) {
  DatasetInfo info{.name = "npy", .channels = train.channels, .height = train.size.height, .width = train.size.width};
  info.classes = std::ranges::max(read_labels(folder / "train_labels.npy", train, kMostClasses)) + 1;
  measure(train, info);
  return info;
}

}  // namespace

std::vector<std::string> npy_file_names() {
  return {"train_images.npy", "train_labels.npy", "test_images.npy", "test_labels.npy"};
}

std::unique_ptr<Dataset> open_npy_dataset(const fs::path& folder, Split split) {
  Images images = read_images(folder / "train_images.npy");
  DatasetInfo info = info_of(folder, images);
  info.split = split;
  const fs::path labels = folder / concat(name_of(split), "_labels.npy");
  if (split == Split::kTest) {
    const fs::path file = folder / "test_images.npy";
    images = read_images(file);
    if (images.size != ImageSize{info.height, info.width} || images.channels != info.channels)
      reject_file(file.native(), "its images do not have the size and channels of train_images.npy");
  }
  std::vector<std::int64_t> targets = read_labels(labels, images, info.classes);
  return std::make_unique<NpyDataset>(std::move(info), std::move(images), std::move(targets));
}

}  // namespace sluice::data
