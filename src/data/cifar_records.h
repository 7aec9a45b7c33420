// cifar_records: format of a CIFAR record and its check. No LibTorch, because the fuzzer builds it. Errors: DataError.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice::data {

enum class CifarKind { k10, k100 };

inline constexpr std::int64_t kCifarChannels = 3, kCifarSide = 32;
inline constexpr std::int64_t kCifarPixels = kCifarChannels * kCifarSide * kCifarSide;

struct CifarFormat {
  std::string name, archive, unpacked;  // data set, download archive, folder in the archive
  std::vector<std::string> train, test;
  std::vector<int> labels;  // number of classes of each label byte; the last byte is the target
  std::vector<double> mean, stddev;

  [[nodiscard]] std::int64_t label_bytes() const { return std::ssize(labels); }
  [[nodiscard]] std::int64_t record_bytes() const { return label_bytes() + kCifarPixels; }
};

[[nodiscard]] const CifarFormat& cifar_format(CifarKind kind);

// Checks: complete records, at least one, every label in its range. file: for messages.
void check_cifar_records(const CifarFormat& format, std::span<const std::uint8_t> bytes, const std::string& file);

}  // namespace sluice::data
