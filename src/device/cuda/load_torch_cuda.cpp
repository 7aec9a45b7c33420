// Loads LibTorch's CUDA library if there is an NVIDIA driver. It takes 0.3 s of processor time and 230 MB of memory,
// which a machine without a GPU need not spend. So programs are not linked with it (cmake/SluiceTorch.cmake). LibTorch
// asks once which devices it supports, perhaps before main.
#include <dlfcn.h>

#include <cstdio>

namespace {

bool load_torch_cuda() {
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) return false;
  if (dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_GLOBAL) != nullptr) return true;
  std::fprintf(stderr, "warning: no GPU can be used: LibTorch's CUDA library cannot be loaded: %s\n", dlerror());
  return false;
}

[[maybe_unused]] const bool kLoaded = load_torch_cuda();

}  // namespace
