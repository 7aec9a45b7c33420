#include "storage/tensor_digest.h"

#include <ATen/ATen.h>

#include "core/concat.h"
#include "storage/checksum.h"

namespace sluice::storage {

std::string digest_of_tensor(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().to(at::kCPU).contiguous();
  return digest_text({static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()}).xxh3_128;
}

std::string digest_of_tensors(const TensorMap& tensors) {
  std::string lines;
  for (const auto& [name, tensor] : tensors) {
    lines +=
        concat(name, " ", at::toString(tensor.scalar_type()), " ", tensor.sizes(), " ", digest_of_tensor(tensor), "\n");
  }
  return digest_text(lines).xxh3_128;
}

}  // namespace sluice::storage
