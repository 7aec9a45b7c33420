#include "core/error.h"
#include "device/backend.h"
#include "device/graph.h"

namespace sluice::device::backend {
namespace {

[[noreturn]] void no_cuda() {
  throw ConfigError(
      "this build of Sluice has no CUDA support; install a CUDA toolkit and run scripts/bootstrap.sh, or set "
      "device.list = \"cpu\"");
}

}  // namespace

int cuda_device_count() { return 0; }
CudaProperties cuda_properties(int) { no_cuda(); }
std::uint64_t cuda_peak_bytes(int) { no_cuda(); }
std::uint64_t cuda_allocated_bytes(int) { no_cuda(); }
void cuda_reset_peak_bytes(int) { no_cuda(); }
void cuda_limit_memory(int, std::uint64_t) { no_cuda(); }
std::shared_ptr<StreamState> make_cuda_stream(int, Urgency) { no_cuda(); }
std::shared_ptr<StreamState> current_cuda_stream(int) { no_cuda(); }
std::unique_ptr<GraphSequence> make_cuda_graphs(int) { no_cuda(); }

}  // namespace sluice::device::backend
