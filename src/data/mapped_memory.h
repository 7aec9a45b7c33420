// mapped_memory: anonymous pages that return to the system as soon as they are freed; malloc() may keep freed memory.
// Pages cost nothing before they are written. Threads: one owner. Without memory, the object is empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace sluice::data {

class MappedMemory {
 public:
  MappedMemory() = default;
  explicit MappedMemory(std::uint64_t bytes);  // rounds up to whole pages
  ~MappedMemory();
  MappedMemory(MappedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedMemory& operator=(MappedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }  // 0: empty
  [[nodiscard]] static std::uint64_t page();
  [[nodiscard]] static std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + page() - 1) / page() * page(); }
  [[nodiscard]] static std::uint64_t pages_within(std::uint64_t bytes) { return bytes / page() * page(); }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace sluice::data
