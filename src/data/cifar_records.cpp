#include "data/cifar_records.h"

#include "core/concat.h"
#include "data/file.h"

namespace sluice::data {

const CifarFormat& cifar_format(CifarKind kind) {
  static const CifarFormat kCifar10{
      .name = "cifar10",
      .archive = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
      .unpacked = "cifar-10-batches-bin",
      .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
      .test = {"test_batch.bin"},
      .labels = {10},
      .mean = {0.4914, 0.4822, 0.4465},
      .stddev = {0.2470, 0.2435, 0.2616}};
  static const CifarFormat kCifar100{.name = "cifar100",
                                     .archive = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                                     .unpacked = "cifar-100-binary",
                                     .train = {"train.bin"},
                                     .test = {"test.bin"},
                                     .labels = {20, 100},
                                     .mean = {0.5071, 0.4865, 0.4409},
                                     .stddev = {0.2673, 0.2564, 0.2762}};
  return kind == CifarKind::k10 ? kCifar10 : kCifar100;
}

void check_cifar_records(const CifarFormat& format, std::span<const std::uint8_t> bytes, const std::string& file) {
  const std::int64_t size = std::ssize(bytes), record = format.record_bytes();
  if (size == 0 || size % record != 0) {
    reject_download(file, concat("found ", size, " bytes, expected a positive multiple of ", record,
                                 ", the size of a record of ", format.name));
  }
  for (std::int64_t at = 0; at < size; at += record) {
    for (std::int64_t i = 0; i < format.label_bytes(); ++i) {
      const int label = bytes[static_cast<std::size_t>(at + i)], classes = format.labels[static_cast<std::size_t>(i)];
      if (label < classes) continue;
      reject_download(file, concat("byte ", at + i, ": the label of record ", at / record, " is ", label,
                                   ", expected 0 to ", classes - 1));
    }
  }
}

}  // namespace sluice::data
