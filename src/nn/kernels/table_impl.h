// table_impl: collects the kernels of one instruction set. One source file per instruction set includes it, with the
// compiler flags of src/nn/CMakeLists.txt.
#pragma once

#include "nn/kernels/attention_impl.h"
#include "nn/kernels/batch_norm_impl.h"
#include "nn/kernels/gelu_impl.h"
#include "nn/kernels/kernels.h"
#include "nn/kernels/long_attention_impl.h"
#include "nn/kernels/rows_impl.h"
#include "nn/kernels/winograd_impl.h"

namespace sluice::nn::kernels::SLUICE_ISA {

static constexpr Table make_table(const char* instruction_set) {
  return {.instruction_set = instruction_set,
          .batch_norm = {batch_norm_kernels<float>(), batch_norm_kernels<Bf16>()},
          .gelu = {{gelu_forward<float>, gelu_backward<float>}, {gelu_forward<Bf16>, gelu_backward<Bf16>}},
          .rms_norm = {rms_norm_forward<float, float>, rms_norm_backward<float, float>},
          .rms_norm_to_bf16 = {rms_norm_forward<float, Bf16>, rms_norm_backward<float, Bf16>},
          .rms_norm_of_bf16 = {rms_norm_forward<Bf16, Bf16>, rms_norm_backward<Bf16, Bf16>},
          .swiglu = {{swiglu_forward<float>, swiglu_backward<float>}, {swiglu_forward<Bf16>, swiglu_backward<Bf16>}},
          .rotary = {{rotate<float>}, {rotate<Bf16>}},
          .cross_entropy = {{exponential_sums<float>, softmax_gradient<float>},
                            {exponential_sums<Bf16>, softmax_gradient<Bf16>}},
          .attention = {{attention_padded, attention_scratch, attention_forward, attention_backward},
                        {attention_padded, bf16_attention_scratch, bf16_attention_forward, bf16_attention_backward}},
          .long_attention = {{long_attention_scratch, long_attention_forward<float>, long_attention_backward<float>},
                             {long_attention_scratch, long_attention_forward<Bf16>, long_attention_backward<Bf16>}},
          .matrix = {transpose},
          .winograd_2x2 = {WinogradSteps<2, float>::table(), WinogradSteps<2, Bf16>::table()},
          .winograd_4x4 = {WinogradSteps<4, float>::table(), WinogradSteps<4, Bf16>::table()}};
}

}  // namespace sluice::nn::kernels::SLUICE_ISA
