// broken_files: counts and logs pictures that could not be read and are replaced by the next readable ones. Any thread.
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
