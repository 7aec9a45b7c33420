// torch_profiler: LibTorch's profiler (Kineto) over all threads of the process; with GPUs it claims CUPTI
// (profiler/arbiter.h). All operators stay in memory until the end. Threads: one, while no step runs. Errors: save()
// throws StorageError for an incomplete file, and Error for LibTorch's errors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace sluice::torch_trace {

class TorchProfiler {
 public:
  // Null if another client has CUPTI (with_gpus) or LibTorch's profiler does not start; `why` then has the reason.
  [[nodiscard]] static std::unique_ptr<TorchProfiler> start(bool with_gpus, std::string& why);
  virtual ~TorchProfiler() = default;  // stops; an unsaved trace is lost

  // Step marks, as readers of such traces expect them.
  virtual void begin_step(std::int64_t number) = 0;
  virtual void end_step() = 0;
  virtual void stop() = 0;
  // Call once, after stop().
  virtual void save(const std::filesystem::path& file) = 0;
};

}  // namespace sluice::torch_trace
