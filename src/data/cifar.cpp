#include "data/cifar.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/error.h"
#include "data/file.h"

namespace sluice::data {
namespace {

constexpr std::uint64_t kMaxCifarBytes = std::uint64_t{1} << 30;  // of a file; CIFAR-100's training file has 0.15 GB

class CifarDataset final : public Dataset {
 public:
  CifarDataset(const CifarFormat& format, Split split, std::vector<std::uint8_t> records)
      : label_bytes_(format.label_bytes()), record_bytes_(format.record_bytes()), records_(std::move(records)) {
    info_ = {.name = format.name,
             .split = split,
             .channels = kCifarChannels,
             .height = kCifarSide,
             .width = kCifarSide,
             .classes = format.labels.back(),
             .mean = format.mean,
             .stddev = format.stddev};
  }

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return std::ssize(records_) / record_bytes_; }
  [[nodiscard]] bool is_in_memory() const override { return true; }

  void read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    check(std::ssize(pixels) == kCifarPixels, "a buffer with the size of one image");
    std::ranges::copy(record(index).last(kCifarPixels), pixels.begin());
  }
  [[nodiscard]] std::int64_t target(std::int64_t index) const override {
    return record(index)[static_cast<std::size_t>(label_bytes_ - 1)];
  }

 private:
  [[nodiscard]] std::span<const std::uint8_t> record(std::int64_t index) const {
    return std::span(records_).subspan(static_cast<std::size_t>(checked(index) * record_bytes_),
                                       static_cast<std::size_t>(record_bytes_));
  }

  DatasetInfo info_;
  std::int64_t label_bytes_;
  std::int64_t record_bytes_;
  std::vector<std::uint8_t> records_;
};

std::filesystem::path find_folder(const CifarFormat& format, const std::filesystem::path& folder,
                                  const std::string& file) {
  for (const auto& candidate : {folder, folder / format.unpacked}) {
    if (is_there(candidate / file)) return candidate;
  }
  throw DataError("data.name = \"", format.name, "\": ", file, " is neither in ", folder.native(), " nor in ",
                  (folder / format.unpacked).native(), "; unpack ", format.archive,
                  " there (the binary version, not Python's) or set data.path");
}

}  // namespace

std::unique_ptr<Dataset> open_cifar(CifarKind kind, const std::filesystem::path& folder, Split split) {
  const CifarFormat& format = cifar_format(kind);
  const std::vector<std::string>& files = split == Split::kTrain ? format.train : format.test;
  const std::filesystem::path found = find_folder(format, folder, files.front());
  std::vector<std::uint8_t> records;
  for (const std::string& name : files) {
    const std::filesystem::path file = found / name;
    const std::vector<std::uint8_t> bytes = read_bytes(file, kMaxCifarBytes);
    check_cifar_records(format, bytes, file.native());
    records.insert(records.end(), bytes.begin(), bytes.end());
  }
  return std::make_unique<CifarDataset>(format, split, std::move(records));
}

std::vector<std::string> cifar_file_names(CifarKind kind) {
  std::vector<std::string> names = cifar_format(kind).train;
  names.insert(names.end(), cifar_format(kind).test.begin(), cifar_format(kind).test.end());
  return names;
}

}  // namespace sluice::data
