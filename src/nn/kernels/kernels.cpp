#include "nn/kernels/kernels.h"

namespace sluice::nn::kernels {

bool supported(const Table& table) {
#if defined(__x86_64__)
  if (&table == &avx512()) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
  }
  if (&table == &avx2()) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return true;
#else
  return &table == &baseline();
#endif
}

const Table& best() {
  static const Table& table = supported(avx512()) ? avx512() : supported(avx2()) ? avx2() : baseline();
  return table;
}

}  // namespace sluice::nn::kernels
