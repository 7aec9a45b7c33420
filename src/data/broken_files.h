// broken_files: counts and logs the pictures that could not be read. Each is replaced by the next readable sample, the
// same one in every process. Threads: any.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>

namespace sluice::data {

class BrokenFiles {
 public:
  // `what` names the file and the defect. Each sample is logged once; after a hundred, only every hundredth one.
  void add(std::int64_t index, const std::string& what);
  [[nodiscard]] std::int64_t count() const;

 private:
  mutable std::mutex mutex_;
  std::set<std::int64_t> samples_;
};

}  // namespace sluice::data
