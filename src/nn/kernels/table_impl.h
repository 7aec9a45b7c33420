// table_impl: collects the kernels of one instruction set; included by exactly one source file per instruction set.
#pragma once

#include "nn/kernels/attention_impl.h"
#include "nn/kernels/batch_norm_impl.h"
#include "nn/kernels/gelu_impl.h"
#include "nn/kernels/kernels.h"
#include "nn/kernels/winograd_impl.h"

namespace sluice::nn::kernels::SLUICE_ISA {

static constexpr Table make_table(const char* instruction_set) {
  return {.instruction_set = instruction_set,
          .batch_norm = {bn_statistics, bn_apply, bn_gradient_sums, bn_gradient},
          .gelu = {gelu_forward, gelu_backward},
          .attention = {attention_padded, attention_scratch, attention_forward, attention_backward},
          .matrix = {transpose},
          .winograd_2x2 = WinogradSteps<2>::table(),
          .winograd_4x4 = WinogradSteps<4>::table()};
}

}  // namespace sluice::nn::kernels::SLUICE_ISA
