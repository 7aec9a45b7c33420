// table_impl: collects the kernels of one instruction set; included by exactly one source file per instruction set.
#pragma once

#include "nn/kernels/attention_impl.h"
#include "nn/kernels/batch_norm_impl.h"
#include "nn/kernels/gelu_impl.h"
#include "nn/kernels/kernels.h"
#include "nn/kernels/winograd_impl.h"

namespace sluice::nn::kernels::SLUICE_ISA {

static constexpr Table make_table(const char* instruction_set) {
  return {
      .instruction_set = instruction_set,
      .batch_norm = {bn_statistics, bn_apply, bn_gradient_sums, bn_gradient},
      .gelu = {gelu_forward, gelu_backward},
      .attention = {attention_padded, attention_scratch, attention_forward, attention_backward},
      .matrix = {transpose},
      .winograd = {winograd_input<false>, winograd_input<true>, winograd_weights, winograd_products, winograd_output,
                   winograd_output_gradient, winograd_weight_products, winograd_panels, winograd_weight_gradient}};
}

}  // namespace sluice::nn::kernels::SLUICE_ISA
