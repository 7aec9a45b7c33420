// mapped_memory: anonymous pages taken from the system at once and given back at once. malloc() may keep what is freed,
// so a budget that is kept with it would not be seen from outside. Pages that were never written cost nothing yet.
// Threads: one owner. Errors: none is thrown; where the system has no memory, it is empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace sluice::data {

class MappedMemory {
 public:
  MappedMemory() = default;
  explicit MappedMemory(std::uint64_t bytes);  // rounded up to whole pages
  ~MappedMemory();
  MappedMemory(MappedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedMemory& operator=(MappedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }  // 0: there is none
  [[nodiscard]] static std::uint64_t page();
  [[nodiscard]] static std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + page() - 1) / page() * page(); }
  [[nodiscard]] static std::uint64_t pages_within(std::uint64_t bytes) { return bytes / page() * page(); }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace sluice::data
