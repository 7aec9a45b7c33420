#define SLUICE_ISA isa_baseline
#include "nn/kernels/table_impl.h"

namespace sluice::nn::kernels {

const Table& baseline() {
  static constexpr Table kTable = SLUICE_ISA::make_table("baseline");
  return kTable;
}

}  // namespace sluice::nn::kernels
