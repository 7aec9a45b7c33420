#include "data/mapped_memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace sluice::data {

std::uint64_t MappedMemory::page() {
  static const auto kBytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return kBytes;
}

MappedMemory::MappedMemory(std::uint64_t bytes) {
  if (bytes == 0) return;
  void* const pages = ::mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return;
  data_ = static_cast<std::byte*>(pages);
  size_ = whole_pages(bytes);
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace sluice::data
