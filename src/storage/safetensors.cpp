#include "storage/safetensors.h"

#include <ATen/ATen.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "storage/files.h"
#include "storage/not_finite.h"
#include "storage/safetensors_header.h"

namespace sluice::storage {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr std::size_t kWriteBlock = std::size_t{4} << 20;  // checked, hashed and written while it is in the cache

using NamedTensor = std::pair<std::string, at::Tensor>;

std::vector<NamedTensor> ordered(const TensorMap& tensors, const std::filesystem::path& path) {
  std::vector<NamedTensor> list(tensors.begin(), tensors.end());
  for (const auto& [name, tensor] : list) {
    check(tensor.defined() && tensor.device().is_cpu() && tensor.layout() == at::kStrided,
          concat("dense CPU tensors for write_safetensors, but found ", quoted_name(name)));
    if (!safetensors_rank(tensor.scalar_type())) {
      throw CheckpointError("cannot write ", path.string(), ": tensor ", quoted_name(name), " has dtype ",
                            c10::toString(tensor.scalar_type()), ", expected one of ", safetensors_dtypes(),
                            "; convert it first");
    }
  }
  std::stable_sort(list.begin(), list.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return safetensors_rank(a.second.scalar_type()) < safetensors_rank(b.second.scalar_type());
  });
  return list;
}

class Mapping {
 public:
  explicit Mapping(const std::filesystem::path& path) {
    const FileDescriptor file = open_for_reading(path);
    struct stat info {};
    if (::fstat(file.get(), &info) != 0) throw_storage_error(errno, "read", path);
    if (info.st_size == 0) return;
    void* const address =
        ::mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get(), 0);
    if (address == MAP_FAILED) {
      throw CheckpointError("cannot map ", path.string(), ": ", std::strerror(errno), "; free memory");
    }
    bytes_ = {static_cast<std::byte*>(address), static_cast<std::size_t>(info.st_size)};
  }
  ~Mapping() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

at::Tensor to_tensor(const std::shared_ptr<Mapping>& mapping, std::uint64_t data_begin, const TensorEntry& entry) {
  const auto options = at::TensorOptions().dtype(entry.dtype);
  if (entry.begin == entry.end) return at::empty(entry.shape, options);
  const auto data = mapping->bytes().subspan(data_begin + entry.begin, entry.end - entry.begin);
  if (reinterpret_cast<std::uintptr_t>(data.data()) % c10::elementSize(entry.dtype) != 0) {
    auto copy = at::empty(entry.shape, options);
    std::memcpy(copy.mutable_data_ptr(), data.data(), data.size());
    return copy;
  }
  return at::from_blob(
      data.data(), entry.shape, [mapping](void* /*data*/) {}, options);
}

void check_booleans(std::span<const std::byte> data, const TensorEntry& entry, const std::filesystem::path& path) {
  if (entry.dtype != at::kBool) return;
  const auto bytes = data.subspan(entry.begin, entry.end - entry.begin);
  const auto wrong = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  if (wrong == bytes.end()) return;
  throw CheckpointError(path.string(), " is not a valid safetensors file: tensor ", quoted_name(entry.name),
                        " of dtype BOOL holds ", std::to_integer<int>(*wrong),
                        ", expected 0 or 1; fetch or save it again");
}

}  // namespace

std::uint64_t tensor_bytes(const TensorMap& tensors) {
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
  return bytes;
}

FileDigest write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                             const std::map<std::string, std::string>& metadata, Values allowed) {
  const auto list = ordered(tensors, path);
  std::vector<TensorEntry> entries;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : list) {
    entries.push_back({name, tensor.scalar_type(), tensor.sizes().vec(), offset, offset + tensor.nbytes()});
    offset += tensor.nbytes();
  }
  const auto header = encode_safetensors_header(metadata, entries);

  AtomicFile file(path, header.size() + offset);
  Digester digester;
  const auto write = [&](std::span<const std::byte> block) {
    digester.update(block);
    file.write(block);
  };
  write(std::as_bytes(std::span(header)));
  for (const auto& [name, tensor] : list) {
    const auto dense = tensor.detach().resolve_neg().contiguous();
    std::span bytes(static_cast<const std::byte*>(dense.const_data_ptr()), dense.nbytes());
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(kWriteBlock, bytes.size()))) {
      const auto block = bytes.first(std::min(kWriteBlock, bytes.size()));
      if (allowed == Values::kFinite && !all_finite(block, dense.scalar_type()))
        throw DivergedError(name, " has ", describe_not_finite(dense));
      write(block);
    }
  }
  file.commit();
  return digester.digest();
}

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  const auto mapping = std::make_shared<Mapping>(path);
  auto header = parse_safetensors_header(mapping->bytes(), path.string());
  SafetensorsFile file{{}, std::move(header.metadata)};
  for (const auto& entry : header.entries) {
    check_booleans(mapping->bytes().subspan(header.data_begin), entry, path);
    file.tensors.emplace(entry.name, to_tensor(mapping, header.data_begin, entry));
  }
  return file;
}

}  // namespace sluice::storage
