#define SLUICE_ISA isa_avx2
#include "nn/kernels/table_impl.h"

namespace sluice::nn::kernels {

const Table& avx2() {
  static constexpr Table kTable = SLUICE_ISA::make_table("avx2");
  return kTable;
}

}  // namespace sluice::nn::kernels
