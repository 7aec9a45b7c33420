// lora_keys: the keys of [model] for low-rank adapters.
#include "config/keys.h"

namespace sluice::config::internal {
namespace {

template <auto kMember>
Field of_model() {
  return field<&Config::model, kMember>();
}

}  // namespace

Keys lora_keys() {
  using C = ModelConfig;
  return {
      {"model.lora_rank", of_model<&C::lora_rank>(), between(0, 65'536), "",
       "Rank of LoRA adapters: y = W x + alpha / rank B A x. Only A, B and the head of a classifier or of question "
       "answering are trained; all other weights are frozen. Checkpoints also have the adapters as peft saves them, "
       "and `sluice merge` adds them to the weights. 0: no adapters"},
      {"model.lora_alpha", of_model<&C::lora_alpha>(), above(0), "",
       "alpha of LoRA adapters: their scale is alpha / rank"},
      {"model.lora_targets", of_model<&C::lora_targets>(), any(), "",
       "Linear layers that get an adapter, by the end of their names, such as query or attention.output.dense. "
       "all-linear: every one besides the head. Empty: as in peft, query and value of BERT, q_proj and v_proj of "
       "Llama, c_attn of GPT-2",
       0, R"(["q_proj", "v_proj"])"},
      {"model.lora_dropout", of_model<&C::lora_dropout>(), fraction(), "",
       "Dropout probability of the input of LoRA adapters", kAdvanced},
      {"model.lora_weights", of_model<&C::lora_weights>(), any(), "",
       "Starting values of the adapters and the head: a folder of peft or a checkpoint of Sluice, with "
       "adapter_model.safetensors and adapter_config.json, or a run directory. The weights below are "
       "model.weights. Empty: fresh adapters, which change nothing before the first step",
       kPerProcess},
  };
}

}  // namespace sluice::config::internal
