#define SLUICE_ISA isa_avx512_bf16
#include "nn/kernels/table_impl.h"

namespace sluice::nn::kernels {

const Table& avx512_bf16() {
  static constexpr Table kTable = SLUICE_ISA::make_table("avx512_bf16");
  return kTable;
}

}  // namespace sluice::nn::kernels
