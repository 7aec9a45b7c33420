// names: maps names to indices and back. Threads: any.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace sluice::profiler {

class Names {
 public:
  [[nodiscard]] int index_of(std::string_view name) {
    const std::scoped_lock lock(mutex_);
    const auto found = indices_.find(name);
    if (found != indices_.end()) return found->second;
    names_.emplace_back(name);
    return indices_.emplace(names_.back(), static_cast<int>(names_.size()) - 1).first->second;
  }
  // Empty for an unknown index.
  [[nodiscard]] std::string name(int index) const {
    const std::scoped_lock lock(mutex_);
    return index >= 0 && index < static_cast<int>(names_.size()) ? names_[index] : std::string{};
  }

 private:
  mutable std::mutex mutex_;
  std::deque<std::string> names_;
  std::map<std::string, int, std::less<>> indices_;
};

}  // namespace sluice::profiler
