#include "data/idx_dataset.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/error.h"
#include "data/file.h"
#include "data/idx.h"

namespace sluice::data {
namespace {

constexpr std::int64_t kIdxClasses = 10;

class IdxDataset final : public Dataset {
 public:
  IdxDataset(DatasetInfo info, IdxArray images, IdxArray labels)
      : info_(std::move(info)), images_(std::move(images)), labels_(std::move(labels)) {}

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return labels_.dims[0]; }
  [[nodiscard]] bool is_in_memory() const override { return true; }

  void read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    check(std::ssize(pixels) == info_.pixels(), "a buffer with the size of one image");
    std::copy_n(images_.values.begin() + checked(index) * info_.pixels(), info_.pixels(), pixels.begin());
  }
  [[nodiscard]] std::int64_t target(std::int64_t index) const override { return labels_.values[checked(index)]; }

 private:
  DatasetInfo info_;
  IdxArray images_;
  IdxArray labels_;
};

std::filesystem::path find_file(const IdxFolder& source, const std::string& file) {
  std::filesystem::path plain = source.folder / file;
  std::filesystem::path packed = source.folder / (file + ".gz");
  if (is_there(plain)) return plain;
  if (is_there(packed)) return packed;
  throw DataError("data.name = \"", source.name, "\": neither ", plain.native(), " nor ", packed.native(), " exists; ",
                  source.when_missing);
}

void check_labels(const IdxArray& images, const IdxArray& labels, const std::filesystem::path& images_file,
                  const std::filesystem::path& labels_file) {
  if (labels.dims[0] != images.dims[0]) {
    throw DataError(labels_file.native(), ": byte 4: found ", labels.dims[0], " labels for the ", images.dims[0],
                    " images in ", images_file.native(), "; put the two files of one download together");
  }
  const auto is_wrong = [](std::uint8_t label) { return label >= kIdxClasses; };
  const auto wrong = std::ranges::find_if(labels.values, is_wrong);
  if (wrong == labels.values.end()) return;
  constexpr std::int64_t kHeaderBytes = 8;
  const std::int64_t sample = wrong - labels.values.begin();
  throw DataError(labels_file.native(), ": byte ", kHeaderBytes + sample, ": the label of sample ", sample, " is ",
                  int{*wrong}, ", expected 0 to ", kIdxClasses - 1, "; fetch the file again");
}

}  // namespace

std::unique_ptr<Dataset> open_idx_dataset(const IdxFolder& source, Split split) {
  const auto files = idx_file_names();
  const std::size_t first = split == Split::kTrain ? 0 : 2;
  const auto images_file = find_file(source, files[first]);
  const auto labels_file = find_file(source, files[first + 1]);
  auto images = read_idx(images_file, IdxKind::kImages);
  auto labels = read_idx(labels_file, IdxKind::kLabels);
  check_labels(images, labels, images_file, labels_file);
  DatasetInfo info{.name = source.name,
                   .split = split,
                   .channels = 1,
                   .height = images.dims[1],
                   .width = images.dims[2],
                   .classes = kIdxClasses,
                   .mean = {source.mean},
                   .stddev = {source.stddev}};
  return std::make_unique<IdxDataset>(std::move(info), std::move(images), std::move(labels));
}

std::vector<std::string> idx_file_names() {
  return {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
}

}  // namespace sluice::data
