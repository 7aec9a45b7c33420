// free_list: keeps expensive objects, such as GPU events, for reuse, last in, first out. It never shrinks. Threads:
// any.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace sluice::device {

template <typename Thing>
class FreeList {
 public:
  // Returns a free object, or make() if the list is empty; make() is called without the lock.
  template <typename Make>
  [[nodiscard]] std::unique_ptr<Thing> take(const Make& make) {
    {
      const std::scoped_lock lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Thing> thing = std::move(free_.back());
        free_.pop_back();
        return thing;
      }
    }
    return make();
  }

  void give_back(std::unique_ptr<Thing> thing) {
    const std::scoped_lock lock(mutex_);
    free_.push_back(std::move(thing));
  }

  [[nodiscard]] std::size_t size() const {
    const std::scoped_lock lock(mutex_);
    return free_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Thing>> free_;
};

}  // namespace sluice::device
