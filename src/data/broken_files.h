// broken_files: the pictures of a data set that could not be read, counted and named in the log. Another sample takes
// the place of each: the next one that can be read, the same in every process.
// Threads: any.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>

namespace sluice::data {

class BrokenFiles {
 public:
  // `what` names the file and what is wrong with it. Said once a sample, of more than a hundred each hundredth one.
  void add(std::int64_t index, const std::string& what);
  [[nodiscard]] std::int64_t count() const;

 private:
  mutable std::mutex mutex_;
  std::set<std::int64_t> samples_;
};

}  // namespace sluice::data
