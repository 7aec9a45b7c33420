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
       "Passes over the training data; ignored if train.steps > 0", kHow | kAfterRecovery},
      {"train.steps", train<&C::steps>(), at_least(0), "steps",
       "Optimizer steps of the run. 0: train.epochs gives the length", kHow | kAfterRecovery},
      {"train.global_batch", train<&C::global_batch>(), at_least(1), "samples",
       "Samples per optimizer step, over all replicas", kPerWorker},
      {"train.micro_batch", train<&C::micro_batch>(), at_least(0), "samples",
       "Samples per micro-batch, which sets the number of chunks. 0: the number of chunks is pipeline.chunks",
       kHow | kPerWorker},
      {"train.eval_batch", train<&C::eval_batch>(), at_least(1), "samples", "Samples per evaluation batch",
       kHow | kPerWorker | kAdvanced},
  };
}

Keys keys_of_updates() {
  using C = TrainConfig;
  return {
      {"train.optimizer", train<&C::optimizer>(), words({"sgd", "momentum", "rmsprop", "adam", "adamw", "lamb"}), "",
       "Update rule"},
      {"train.lr", train<&C::lr>(), above(0), "", "Learning rate after the warm-up", kAfterRecovery},
      {"train.head_lr", train<&C::head_lr>(), above(0), "",
       "Factor on the learning rate of the model's last layer, the classifier", kAdvanced},
      {"train.momentum", train<&C::momentum>(), fraction(), "", "Momentum of train.optimizer = \"momentum\""},
      {"train.nesterov", train<&C::nesterov>(), any(), "",
       "Use Nesterov momentum; needs train.optimizer = \"momentum\"", kAdvanced},
      {"train.weight_decay", train<&C::weight_decay>(), real_at_least(0), "",
       "Weight decay: an L2 penalty, decoupled from the gradient in adamw and lamb"},
      {"train.no_decay", train<&C::no_decay>(), words({"norm", "bias", "position"}), "",
       "Parameters without weight decay. norm: weights and biases of normalisation layers. bias: biases of all other "
       "layers. position: position embeddings and class tokens",
       kAdvanced, R"(["norm", "bias"])"},
      {"train.beta1", train<&C::beta1>(), fraction(), "", "Decay rate of the mean gradient in adam, adamw and lamb",
       kAdvanced},
      {"train.beta2", train<&C::beta2>(), fraction(), "",
       "Decay rate of the mean squared gradient in adam, adamw and lamb", kAdvanced},
      {"train.eps", train<&C::eps>(), above(0), "", "Number added to the denominator in rmsprop, adam, adamw and lamb",
       kAdvanced},
      {"train.amsgrad", train<&C::amsgrad>(), any(), "",
       "Divide by the largest mean squared gradient so far, in adam and adamw", kAdvanced},
      {"train.rms_alpha", train<&C::rms_alpha>(), fraction(), "", "Decay rate of the mean squared gradient in rmsprop",
       kAdvanced},
  };
}

Keys keys_of_rates() {
  using C = TrainConfig;
  return {
      {"train.lr_schedule", train<&C::lr_schedule>(),
       words({"constant", "cosine", "linear", "polynomial", "exponential", "step", "onecycle", "plateau"}), "",
       "How the learning rate changes. plateau: it falls when evaluations stop improving (train.lr_patience)",
       kAfterRecovery},
      {"train.warmup_steps", train<&C::warmup_steps>(), at_least(0), "steps",
       "Steps in which the learning rate rises linearly to train.lr"},
      {"train.warmup_epochs", train<&C::warmup_epochs>(), real_at_least(0), "epochs",
       "Length of the warm-up in epochs, also a part of one; replaces train.warmup_steps", kAdvanced},
      {"train.lr_min", train<&C::lr_min>(), real_at_least(0), "",
       "Learning rate at the end of cosine, linear and polynomial, and lower limit of plateau",
       kAfterRecovery | kAdvanced},
      {"train.lr_decay_steps", train<&C::lr_decay_steps>(), at_least(1), "steps",
       "Steps at which the schedule \"step\" multiplies the learning rate by train.lr_decay",
       kAfterRecovery | kAdvanced},
      {"train.lr_decay", train<&C::lr_decay>(), RealRange{.low = 0, .high = 1, .low_open = true}, "",
       "Factor on the learning rate in the schedules \"step\", \"exponential\" and \"plateau\"",
       kAfterRecovery | kAdvanced},
      {"train.lr_decay_every", train<&C::lr_decay_every>(), at_least(0), "steps",
       "Steps until the learning rate has changed by the factor train.lr_decay: at once every N steps (\"step\"), or "
       "continuously (\"exponential\"). 0: at train.lr_decay_steps",
       kAfterRecovery | kAdvanced},
      {"train.lr_decay_epochs", train<&C::lr_decay_epochs>(), at_least(1), "epochs",
       "train.lr_decay_steps in epochs; replaces that key", kAfterRecovery | kAdvanced},
      {"train.lr_decay_every_epochs", train<&C::lr_decay_every_epochs>(), at_least(0), "epochs",
       "train.lr_decay_every in epochs; replaces that key", kAfterRecovery | kAdvanced},
      {"train.lr_power", train<&C::lr_power>(), above(0), "", "Exponent of the schedule \"polynomial\"",
       kAfterRecovery | kAdvanced},
      {"train.lr_patience", train<&C::lr_patience>(), at_least(0), "evaluations",
       "Consecutive evaluations without improvement (train.best_by) that the schedule \"plateau\" accepts; one more "
       "multiplies the learning rate by train.lr_decay",
       kAfterRecovery | kAdvanced},
  };
}

Keys keys_of_the_rest() {
  using C = TrainConfig;
  return {
      {"train.label_smoothing", train<&C::label_smoothing>(), fraction(), "",
       "Share of the target that is spread over all classes"},
      {"train.ema_decay", train<&C::ema_decay>(), fraction(), "",
       "Decay of an exponential moving average of the weights, per update of the average. It is saved, and evaluated "
       "in addition to the weights. 0: no average",
       kAdvanced},
      {"train.ema_every_steps", train<&C::ema_every_steps>(), at_least(1), "steps",
       "Steps between two updates of this average", kAdvanced},
      {"train.clip_norm", train<&C::clip_norm>(), real_at_least(0), "",
       "Largest norm of the gradient of all parameters together; a larger gradient is scaled down. 0: no clipping"},
      {"train.noise_scale_every_steps", train<&C::noise_scale_every_steps>(), at_least(0), "steps",
       "Steps between estimates of the gradient noise scale. They use the gradient norms of the replicas. With one "
       "replica, they use its norms after its first micro-batches. 0: never",
       kHow | kAdvanced},
      {"train.precision", train<&C::precision>(), words({"fp32", "bf16", "fp64"}), "",
       "Number format. bf16: activations and products in bfloat16; weights, gradient sums, normalisation, softmax and "
       "loss in float32"},
      {"train.winograd", train<&C::winograd>(), words({"none", "2x2", "4x4"}), "",
       "Algorithm for 3x3 convolutions on CPUs, in bf16 for their gradients. none: plain sum. 2x2: Winograd's F(2x2, "
       "3x3) if it is faster, with similar rounding. 4x4: also F(4x4, 3x3), which is faster and rounds two to six "
       "times as much",
       kAdvanced},
      {"train.seed", train<&C::seed>(), between(0, kLargestSeed), "",
       "Seed of weights, sample order, augmentation and dropout"},
      {"train.deterministic", train<&C::deterministic>(), any(), "",
       "Use only kernels with reproducible results; slower on GPUs", kPerWorker},
      {"train.reproducible", train<&C::reproducible>(), words({"off", "layout"}), "",
       "layout: the same weights, bit for bit, for any number of stages, replicas and processes, any schedule and any "
       "resume. Needs train.micro_batch and device.threads"},
      {"train.eval_every_steps", train<&C::eval_every_steps>(), at_least(0), "steps",
       "Steps between evaluations. 0: train.eval_every_epochs gives the interval", kHow | kPerWorker},
      {"train.eval_every_epochs", train<&C::eval_every_epochs>(), at_least(1), "epochs",
       "Epochs between evaluations; the last step is always followed by one", kHow | kPerWorker},
      {"train.eval_limit", train<&C::eval_limit>(), at_least(0), "samples",
       "Evaluate on only this many samples of the test set, chosen as with data.limit. 0: all",
       kHow | kPerWorker | kAdvanced},
      {"train.best_by", train<&C::best_by>(), any(), "",
       "Which evaluation is better, for checkpoint.best, train.stop_patience and the schedule \"plateau\": a score, or "
       "\"loss\". A task without top1 takes its main score for \"top1\"",
       kAdvanced},
      {"train.stop_patience", train<&C::stop_patience>(), at_least(0), "evaluations",
       "End the run after this many consecutive evaluations without improvement (train.best_by). 0: never",
       kHow | kAdvanced},
      {"train.step_timeout_s", train<&C::step_timeout_s>(), real_between(0, 1e6), "s",
       "Report a step as hung after this time; waiting for other processes does not count. 0: 20 times the longest "
       "step so far, at least 60 s, and an hour for the first step",
       kHow | kPerProcess | kAdvanced},
  };
}

}  // namespace

Keys train_keys() { return joined({keys_of_steps, keys_of_updates, keys_of_rates, keys_of_the_rest}); }

}  // namespace sluice::config::internal
