#include "data/cifar.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "data/file.h"

namespace sluice::data {
namespace {

constexpr std::int64_t kChannels = 3, kSide = 32, kPixels = kChannels * kSide * kSide;
constexpr std::uint64_t kMaxCifarBytes = std::uint64_t{1} << 30;  // of a file; CIFAR-100's training file has 0.15

struct Format {
  std::string name, archive, unpacked;  // the data set, where it comes from, the folder in the archive
  std::vector<std::string> train, test;
  std::vector<int> labels;  // classes of each label byte; the last byte is the target
  std::vector<double> mean, stddev;

  [[nodiscard]] std::int64_t label_bytes() const { return std::ssize(labels); }
  [[nodiscard]] std::int64_t record_bytes() const { return label_bytes() + kPixels; }
};

const Format& format_of(CifarKind kind) {
  static const Format kCifar10{
      .name = "cifar10",
      .archive = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
      .unpacked = "cifar-10-batches-bin",
      .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
      .test = {"test_batch.bin"},
      .labels = {10},
      .mean = {0.4914, 0.4822, 0.4465},
      .stddev = {0.2470, 0.2435, 0.2616}};
  static const Format kCifar100{.name = "cifar100",
                                .archive = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                                .unpacked = "cifar-100-binary",
                                .train = {"train.bin"},
                                .test = {"test.bin"},
                                .labels = {20, 100},
                                .mean = {0.5071, 0.4865, 0.4409},
                                .stddev = {0.2673, 0.2564, 0.2762}};
  return kind == CifarKind::k10 ? kCifar10 : kCifar100;
}

class CifarDataset final : public Dataset {
 public:
  CifarDataset(const Format& format, Split split, std::vector<std::uint8_t> records)
      : label_bytes_(format.label_bytes()), record_bytes_(format.record_bytes()), records_(std::move(records)) {
    info_ = {.name = format.name,
             .split = split,
             .channels = kChannels,
             .height = kSide,
             .width = kSide,
             .classes = format.labels.back(),
             .mean = format.mean,
             .stddev = format.stddev};
  }

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return std::ssize(records_) / record_bytes_; }
  [[nodiscard]] bool is_in_memory() const override { return true; }

  void read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    check(std::ssize(pixels) == kPixels, "the buffer has not the size of one image");
    std::ranges::copy(record(index).last(kPixels), pixels.begin());
  }
  [[nodiscard]] std::int64_t target(std::int64_t index) const override {
    return record(index)[static_cast<std::size_t>(label_bytes_ - 1)];
  }

 private:
  [[nodiscard]] std::span<const std::uint8_t> record(std::int64_t index) const {
    check(index >= 0 && index < size(), "sample index out of range");
    return std::span(records_).subspan(static_cast<std::size_t>(index * record_bytes_),
                                       static_cast<std::size_t>(record_bytes_));
  }

  DatasetInfo info_;
  std::int64_t label_bytes_;
  std::int64_t record_bytes_;
  std::vector<std::uint8_t> records_;
};

std::filesystem::path find_folder(const Format& format, const std::filesystem::path& folder, const std::string& file) {
  for (const auto& candidate : {folder, folder / format.unpacked}) {
    if (is_there(candidate / file)) return candidate;
  }
  throw DataError(concat("data.name = \"", format.name, "\": ", file, " is neither in ", folder.native(), " nor in ",
                         (folder / format.unpacked).native(), "; unpack ", format.archive,
                         " there (the binary version, not Python's) or set data.path"));
}

void check_records(const Format& format, std::span<const std::uint8_t> bytes, const std::string& file) {
  const std::int64_t size = std::ssize(bytes), record = format.record_bytes();
  if (size == 0 || size % record != 0) {
    reject_file(file, concat(size, " bytes found, a positive multiple of ", record,
                             " expected, the size of a record of ", format.name));
  }
  for (std::int64_t at = 0; at < size; at += record) {
    for (std::int64_t i = 0; i < format.label_bytes(); ++i) {
      const int label = bytes[static_cast<std::size_t>(at + i)], classes = format.labels[static_cast<std::size_t>(i)];
      if (label < classes) continue;
      reject_file(file, concat("byte ", at + i, ": the label of record ", at / record, " is ", label, ", 0 to ",
                               classes - 1, " expected"));
    }
  }
}

}  // namespace

std::unique_ptr<Dataset> open_cifar(CifarKind kind, const std::filesystem::path& folder, Split split) {
  const Format& format = format_of(kind);
  const std::vector<std::string>& files = split == Split::kTrain ? format.train : format.test;
  const std::filesystem::path found = find_folder(format, folder, files.front());
  std::vector<std::uint8_t> records;
  for (const std::string& name : files) {
    const std::filesystem::path file = found / name;
    const std::vector<std::uint8_t> bytes = read_bytes(file, kMaxCifarBytes);
    check_records(format, bytes, file.native());
    records.insert(records.end(), bytes.begin(), bytes.end());
  }
  return std::make_unique<CifarDataset>(format, split, std::move(records));
}

std::vector<std::string> cifar_file_names(CifarKind kind) {
  std::vector<std::string> names = format_of(kind).train;
  names.insert(names.end(), format_of(kind).test.begin(), format_of(kind).test.end());
  return names;
}

}  // namespace sluice::data
