#include "config/keys.h"

namespace sluice::config::internal {
namespace {

constexpr std::int64_t kLargestSeed = std::numeric_limits<std::int64_t>::max();

template <auto kMember>
Field train() {
  return field<&Config::train, kMember>();
}

Keys keys_of_steps() {
  using C = TrainConfig;
  return {
      {"train.epochs", train<&C::epochs>(), at_least(0), "epochs",
       "passes over the training data; ignored when train.steps > 0", kHow | kAfterRecovery},
      {"train.steps", train<&C::steps>(), at_least(0), "steps",
       "train exactly this many optimizer steps; 0 = as many as train.epochs take", kHow | kAfterRecovery},
      {"train.global_batch", train<&C::global_batch>(), at_least(1), "samples",
       "samples per optimizer step, over all replicas", kPerWorker},
      {"train.micro_batch", train<&C::micro_batch>(), at_least(0), "samples",
       "samples per micro-batch; 0 = from pipeline.chunks, else the chunks follow from it", kHow | kPerWorker},
      {"train.eval_batch", train<&C::eval_batch>(), at_least(1), "samples", "samples per evaluation batch",
       kHow | kPerWorker},
  };
}

Keys keys_of_updates() {
  using C = TrainConfig;
  return {
      {"train.optimizer", train<&C::optimizer>(), words({"sgd", "momentum", "rmsprop", "adam", "adamw", "lamb"}), "",
       "update rule"},
      {"train.lr", train<&C::lr>(), above(0), "", "learning rate after the warm-up", kAfterRecovery},
      {"train.head_lr", train<&C::head_lr>(), above(0), "",
       "factor of the learning rate of the model's last layer, the classifier"},
      {"train.momentum", train<&C::momentum>(), fraction(), "", "momentum of the optimizer \"momentum\""},
      {"train.nesterov", train<&C::nesterov>(), any(), "",
       "momentum by Nesterov; needs train.optimizer = \"momentum\""},
      {"train.weight_decay", train<&C::weight_decay>(), real_at_least(0), "", "L2 penalty; adamw and lamb decouple it"},
      {"train.no_decay", train<&C::no_decay>(), words({"norm", "bias", "position"}), "",
       "parameters that train.weight_decay leaves alone: norm = weights and biases of normalisations, bias = biases of "
       "all other layers, position = position embeddings and class tokens"},
      {"train.beta1", train<&C::beta1>(), fraction(), "", "decay of the mean gradient in adam, adamw and lamb"},
      {"train.beta2", train<&C::beta2>(), fraction(), "", "decay of the mean squared gradient in adam, adamw and lamb"},
      {"train.eps", train<&C::eps>(), above(0), "", "added to the denominator in rmsprop, adam, adamw and lamb"},
      {"train.amsgrad", train<&C::amsgrad>(), any(), "",
       "adam and adamw divide by the largest mean squared gradient so far"},
      {"train.rms_alpha", train<&C::rms_alpha>(), fraction(), "", "decay of the mean squared gradient in rmsprop"},
  };
}

Keys keys_of_rates() {
  using C = TrainConfig;
  return {
      {"train.lr_schedule", train<&C::lr_schedule>(),
       words({"constant", "cosine", "linear", "polynomial", "exponential", "step", "onecycle", "plateau"}), "",
       "how the learning rate changes; plateau: by evaluations, train.lr_patience", kAfterRecovery},
      {"train.warmup_steps", train<&C::warmup_steps>(), at_least(0), "steps", "steps of linear rise to train.lr"},
      {"train.warmup_epochs", train<&C::warmup_epochs>(), real_at_least(0), "epochs",
       "likewise in epochs, also a part of one; in the place of train.warmup_steps"},
      {"train.lr_min", train<&C::lr_min>(), real_at_least(0), "",
       "learning rate at the end of cosine, linear and polynomial, and the least of plateau", kAfterRecovery},
      {"train.lr_decay_steps", train<&C::lr_decay_steps>(), at_least(1), "steps",
       "optimizer steps at which the schedule \"step\" multiplies the rate", kAfterRecovery},
      {"train.lr_decay", train<&C::lr_decay>(), RealRange{.low = 0, .high = 1, .low_open = true}, "",
       "factor of \"step\", \"exponential\" and \"plateau\"", kAfterRecovery},
      {"train.lr_decay_every", train<&C::lr_decay_every>(), at_least(0), "steps",
       "\"step\" multiplies the rate every so many steps, \"exponential\" has come to that factor after so many; 0 = "
       "at "
       "train.lr_decay_steps",
       kAfterRecovery},
      {"train.lr_decay_epochs", train<&C::lr_decay_epochs>(), at_least(1), "epochs",
       "train.lr_decay_steps in epochs, and in its place", kAfterRecovery},
      {"train.lr_decay_every_epochs", train<&C::lr_decay_every_epochs>(), at_least(0), "epochs",
       "train.lr_decay_every in epochs, and in its place", kAfterRecovery},
      {"train.lr_power", train<&C::lr_power>(), above(0), "", "exponent of \"polynomial\"", kAfterRecovery},
      {"train.lr_patience", train<&C::lr_patience>(), at_least(0), "evaluations",
       "after more evaluations in a row than this that were no better by train.best_by, \"plateau\" multiplies the "
       "rate",
       kAfterRecovery},
  };
}

Keys keys_of_the_rest() {
  using C = TrainConfig;
  return {
      {"train.label_smoothing", train<&C::label_smoothing>(), fraction(), "",
       "share of the target spread over all classes"},
      {"train.ema_decay", train<&C::ema_decay>(), fraction(), "",
       "an exponential moving average of the weights is kept, of which so much stays in each update of it; it is "
       "saved, "
       "and evaluated beside the weights; 0 = none"},
      {"train.ema_every_steps", train<&C::ema_every_steps>(), at_least(1), "steps",
       "steps between two updates of that average"},
      {"train.clip_norm", train<&C::clip_norm>(), real_at_least(0), "",
       "largest norm of the gradient of all parameters together; a longer one is scaled down; 0 = any"},
      {"train.noise_scale_every_steps", train<&C::noise_scale_every_steps>(), at_least(0), "steps",
       "in each so many-th step the gradient noise scale is estimated from the norms of the replicas' gradients, or of "
       "one replica's after its first micro-batches; 0 = never",
       kHow},
      {"train.precision", train<&C::precision>(), words({"fp32", "bf16", "fp64"}), "",
       "number format; bf16: activations and products in bfloat16; weights, the sums of gradients, norms, softmax and "
       "loss in float32"},
      {"train.winograd", train<&C::winograd>(), words({"none", "2x2", "4x4"}), "",
       "3x3 convolutions on CPUs, in bf16 their gradients: by the plain sum; by Winograd's F(2x2, 3x3) where it pays, "
       "which rounds "
       "about as that does; or by F(4x4, 3x3) too, which is faster and rounds two to six times as much"},
      {"train.seed", train<&C::seed>(), between(0, kLargestSeed), "",
       "seed of weights, sample order, augmentation and dropout"},
      {"train.deterministic", train<&C::deterministic>(), any(), "",
       "use only kernels whose result does not vary; slower on GPUs", kPerWorker},
      {"train.eval_every_steps", train<&C::eval_every_steps>(), at_least(0), "steps",
       "steps between evaluations; 0 = by train.eval_every_epochs", kHow | kPerWorker},
      {"train.eval_every_epochs", train<&C::eval_every_epochs>(), at_least(1), "epochs",
       "epochs between evaluations; the last step is followed by one in any case", kHow | kPerWorker},
      {"train.eval_limit", train<&C::eval_limit>(), at_least(0), "samples",
       "evaluate on so many samples of the test set only, chosen as by data.limit; 0 = all", kHow | kPerWorker},
      {"train.best_by", train<&C::best_by>(), words({"top1", "loss"}), "",
       "which evaluation is the better one: that with more right predictions, or that with a smaller loss; for "
       "checkpoint.best, train.stop_patience and the schedule plateau"},
      {"train.stop_patience", train<&C::stop_patience>(), at_least(0), "evaluations",
       "the run ends early after so many evaluations in a row that were no better by train.best_by; 0 = never", kHow},
      {"train.step_timeout_s", train<&C::step_timeout_s>(), real_between(0, 1e6), "s",
       "a step that takes longer is reported as hung; what it waits for other processes does not count; 0 = 20 times "
       "the longest step so far, at least 60 s, and an hour for the first",
       kHow | kPerProcess},
  };
}

}  // namespace

Keys train_keys() { return joined({keys_of_steps, keys_of_updates, keys_of_rates, keys_of_the_rest}); }

}  // namespace sluice::config::internal
