// meta_work: counts what GPUs would do for tensors on the device "meta", which have shapes but no memory. A program
// that links meta_work.cpp runs the layers' GPU paths on such tensors: with stand-ins for the GPU kernels of this
// project (nn/cuda/operations.h), and for those of LibTorch that have none. Counts are per thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <ATen/record_function.h>

namespace sluice::meta {

struct Work {
  std::int64_t launches = 0;  // operators that write memory; on a GPU most are one kernel
  std::int64_t waits = 0;     // for a number that the host reads
  double bytes = 0;           // written
  double product_bytes = 0;   // the part that matrix products, convolutions and attention write
  std::map<std::string, int> by_name;
};

// Counts the work of the calling thread from construction, or the last take(), to take().
class WorkCount {
 public:
  WorkCount();
  ~WorkCount();
  WorkCount(const WorkCount&) = delete;
  WorkCount& operator=(const WorkCount&) = delete;

  [[nodiscard]] Work take();

 private:
  at::CallbackHandle handle_;
};

}  // namespace sluice::meta
