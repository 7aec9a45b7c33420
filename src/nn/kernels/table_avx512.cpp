#define SLUICE_ISA isa_avx512
#include "nn/kernels/table_impl.h"

namespace sluice::nn::kernels {

const Table& avx512() {
  static constexpr Table kTable = SLUICE_ISA::make_table("avx512");
  return kTable;
}

}  // namespace sluice::nn::kernels
