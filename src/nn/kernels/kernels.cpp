#include "nn/kernels/kernels.h"

#include <initializer_list>

namespace sluice::nn::kernels {

bool supported(const Table& table) {
#if defined(__x86_64__)
  if (&table == &avx512_bf16()) return supported(avx512()) && __builtin_cpu_supports("avx512bf16");
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
  static const Table& widest = []() -> const Table& {
    for (const Table* table : {&avx512_bf16(), &avx512(), &avx2()}) {
      if (supported(*table)) return *table;
    }
    return baseline();
  }();
  return widest;
}

}  // namespace sluice::nn::kernels
