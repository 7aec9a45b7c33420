// torch_profiler: LibTorch's own profiler (Kineto), over all threads of the process, from its start until it is saved
// or destroyed: every operator with its shapes, and with GPUs what CUPTI records. Its file is the Trace Event Format,
// as PyTorch's Python profiler writes it. One at a time, and of one claim to CUPTI (profiler/arbiter.h) where GPUs are
// recorded. Memory: every operator stays in memory until the end: the caller bounds how many there are.
// Threads: one, while no step runs. Errors: save() throws StorageError where the file is not whole, and Error for what
// LibTorch says; start() says why it could not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace sluice::torch_trace {

class TorchProfiler {
 public:
  // Null where another client has CUPTI (with_gpus), or LibTorch's profiler does not start; `why` then says so.
  [[nodiscard]] static std::unique_ptr<TorchProfiler> start(bool with_gpus, std::string& why);
  virtual ~TorchProfiler() = default;  // ends it; what it has seen is lost unless it was saved

  // The steps' marks, as readers of such traces look for them.
  virtual void begin_step(std::int64_t number) = 0;
  virtual void end_step() = 0;
  // Nothing more is recorded.
  virtual void stop() = 0;
  // Once, after stop().
  virtual void save(const std::filesystem::path& file) = 0;
};

}  // namespace sluice::torch_trace
