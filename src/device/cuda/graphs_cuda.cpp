#include <exception>
#include <mutex>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include "device/backend.h"
#include "device/graph.h"

namespace sluice::device::backend {
namespace {

using Tensors = std::vector<at::Tensor>;

// The memory returns to the graphs' pool when its owners are destroyed; later graphs may then use it.
at::Tensor without_owning(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return at::for_blob(tensor.mutable_data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(tensor.options())
      .target_device(tensor.device())
      .make_tensor();
}

Tensors without_owning(const Tensors& tensors) {
  Tensors views;
  for (const at::Tensor& tensor : tensors) views.push_back(without_owning(tensor));
  return views;
}

class CudaGraph final : public Graph {
 public:
  CudaGraph(c10::MempoolId_t pool, const Tensors& like, const GraphWork& work) {
    // Capture changes process-wide lists that LibTorch keeps without a lock (its random generators), so one thread
    // captures at a time. Capture is host work only and waits for no thread except autograd's.
    static std::mutex one_at_a_time;
    static bool has_failed = false;  // LibTorch may still see an unfinished capture
    const std::scoped_lock lock(one_at_a_time);
    TORCH_CHECK(!has_failed, "recording has failed in another thread of this process");
    // Thread-local mode: other threads may allocate, copy and query events meanwhile, but this thread may not.
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      capture(like, work);
      graph_.capture_end();
    } catch (...) {
      has_failed = true;
      end_failed_capture();
      throw;
    }
  }

  [[nodiscard]] const Tensors& inputs() const override { return inputs_; }
  void launch() override { graph_.replay(); }
  [[nodiscard]] const Tensors& outputs() const override { return outputs_; }

 private:
  // Allocates the inputs inside the capture, so that their memory belongs to the pool and is reused.
  void capture(const Tensors& like, const GraphWork& work) {
    Tensors inputs;
    for (const at::Tensor& tensor : like) inputs.push_back(tensor.defined() ? at::empty_like(tensor) : at::Tensor());
    inputs_ = without_owning(inputs);
    outputs_ = without_owning(work(inputs));
  }

  void end_failed_capture() noexcept {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
    }
  }

  at::cuda::CUDAGraph graph_;
  Tensors inputs_, outputs_;
};

class CudaGraphs final : public GraphSequence {
 public:
  [[nodiscard]] std::unique_ptr<Graph> record(const Tensors& inputs, const GraphWork& work) override {
    return std::make_unique<CudaGraph>(pool_, inputs, work);
  }

 private:
  c10::MempoolId_t pool_ = at::cuda::graph_pool_handle();
};

}  // namespace

std::unique_ptr<GraphSequence> make_cuda_graphs(int index) {
  const c10::cuda::CUDAGuard on_device(static_cast<c10::DeviceIndex>(index));
  c10::cuda::device_synchronize();
  c10::cuda::CUDACachingAllocator::emptyCache();
  return std::make_unique<CudaGraphs>();
}

}  // namespace sluice::device::backend
