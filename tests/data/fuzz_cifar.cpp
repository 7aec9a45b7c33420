// Any bytes as a file of CIFAR: whole records with labels in their range, or one DataError.
#include <cstdint>
#include <cstdlib>

#include "core/error.h"
#include "data/cifar_records.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice::data;
  for (const CifarKind kind : {CifarKind::k10, CifarKind::k100}) {
    const CifarFormat& format = cifar_format(kind);
    const auto record = static_cast<std::size_t>(format.record_bytes());
    bool is_right = size > 0 && size % record == 0;
    for (std::size_t at = 0; is_right && at < size; at += record) {
      is_right = data[at] < format.labels[0];
      if (format.labels.size() == 2) is_right = is_right && data[at + 1] < format.labels[1];
    }
    try {
      check_cifar_records(format, {data, size}, "fuzz");
      if (!is_right) std::abort();
    } catch (const sluice::DataError&) {
      if (is_right) std::abort();
    }
  }
  return 0;
}
