#include "config/keys.h"

namespace sluice::config::internal {
namespace {

template <auto kMember>
Field ps() {
  return field<&Config::ps, kMember>();
}

Keys keys_of_workers() {
  using C = PsConfig;
  return {
      {"ps.policy", ps<&C::policy>(),
       words({"bsp", "ssp", "asp", "quorum", "fmb", "amb", "dual_batch", "local_sgd", "diloco"}), "",
       "for replicas.sync = \"ps\": which pushes make an update; bsp, fmb: one of every worker; ssp: each one, and "
       "nobody is more than ps.staleness ahead of the slowest; asp: each one; quorum: those of ps.quorum workers; "
       "amb: as fmb, but workers stop computing after ps.time_limit_s; dual_batch: each one, of weights after a "
       "share of an epoch, ps.small_workers of them with a smaller batch; local_sgd: the mean of all weights after "
       "ps.local_steps steps of their own; diloco: likewise, what they have moved being the gradient of an outer step"},
      {"ps.clock", ps<&C::clock>(), words({"real", "virtual"}), "",
       "real: the server and its workers are processes (ps.placement); virtual: the server and all its workers in one "
       "process, one worker after the other, on a clock that is charged what each would take (ps.sample_s, ps.step_s, "
       "ps.bytes_per_s, ps.induce)"},
      {"ps.placement", ps<&C::placement>(), words({"rank0", "servers"}), "",
       "which process is the server: rank0: the first of the launch, and the others are its workers; servers: the one "
       "that sluice serve has started, and all of the launch are workers",
       kHow | kAfterRecovery},
      {"ps.address", ps<&C::address>(), any(), "",
       "HOST:PORT of the server; of several with a comma between them, and where only the first is given the others "
       "are on the same machine at the ports that follow; empty: where rank 0 of the launch is met (--init, "
       "MASTER_ADDR and MASTER_PORT)",
       kHow | kPerWorker},
      {"ps.keys", ps<&C::keys>(), any(), "",
       "folder with server.pub, and for the server server.key (sluice make-keys): all that travels is encrypted, and "
       "only those who have the keys are heard; empty: not encrypted, and the server listens on 127.0.0.1 only",
       kHow | kPerWorker},
      {"ps.workers", ps<&C::workers>(), between(1, 4096), "workers",
       "workers of the server, each a pipeline; with ps.placement = \"rank0\" all processes but the servers"},
      {"ps.worker_batch", ps<&C::worker_batch>(), at_least(0), "samples",
       "samples of a worker's step; 0 = train.global_batch / ps.workers", kPerWorker},
      {"ps.servers", ps<&C::servers>(), between(1, 64), "servers",
       "processes that keep the parameters, each its part: the first one decides when updates are made and keeps the "
       "records, the others (sluice serve --server N; with ps.placement = \"rank0\" the next processes of the launch) "
       "only do what it tells them",
       kHow},
      {"ps.shards", ps<&C::shards>(), between(1, 1024), "shards", "parts that each server cuts its parameters into",
       kHow},
      {"ps.quorum", ps<&C::quorum>(), between(0, 4096), "workers",
       "workers whose pushes make an update; 0: all; auto: as the policy has it, more than half for quorum"},
      {"ps.staleness", ps<&C::staleness>(), between(-1, 1'000'000), "pushes",
       "pushes that a worker may be ahead of the slowest when it begins; -1: any; auto: as the policy has it, 3 for "
       "ssp"},
      {"ps.grace_s", ps<&C::grace_s>(), real_at_least(0), "s",
       "how long an update still waits for more pushes once its quorum is there"},
      {"ps.time_limit_s", ps<&C::time_limit_s>(), real_at_least(0), "s",
       "after so long, stalls included, a worker begins no other slice of its step than the first; 0 = none"},
      {"ps.partitions", ps<&C::partitions>(), between(0, 65'536), "slices",
       "slices of a worker's step between which it looks at the clock: its micro-batches; 0 = pipeline.chunks",
       kPerWorker},
  };
}

// Keys of stalls, and of virtual time.
Keys keys_of_stalls() {
  using C = PsConfig;
  return {
      {"ps.induce", ps<&C::induce>(), words({"none", "ec2", "cedar", "exponential"}), "",
       "how workers are made to stall before each step, drawn with train.seed; ec2, cedar: the mixtures of the anytime "
       "project; exponential: ps.induce_shift_s plus an exponential of mean ps.induce_mean_s",
       kAfterRecovery},
      {"ps.induce_scale", ps<&C::induce_scale>(), above(0), "", "what these stalls are multiplied by", kAfterRecovery},
      {"ps.induce_shift_s", ps<&C::induce_shift_s>(), real_at_least(0), "s", "for ps.induce = \"exponential\"",
       kAfterRecovery},
      {"ps.induce_mean_s", ps<&C::induce_mean_s>(), real_at_least(0), "s", "for ps.induce = \"exponential\"",
       kAfterRecovery},
      {"ps.sample_s", ps<&C::sample_s>(), real_at_least(0), "s", "virtual time that a sample takes a worker"},
      {"ps.step_s", ps<&C::step_s>(), real_at_least(0), "s",
       "virtual time that a step takes besides, and with ps.time_limit_s each slice of it"},
      {"ps.bytes_per_s", ps<&C::bytes_per_s>(), real_at_least(0), "bytes/s",
       "virtual speed between a worker and the server, each way; 0: sending takes no time"},
  };
}

// Keys of policies whose workers train locally.
Keys keys_of_local_training() {
  using C = PsConfig;
  return {
      {"ps.local_steps", ps<&C::local_steps>(), between(0, 1'000'000), "steps",
       "of its own optimizer that a worker makes between pushes; 0: as the policy has it, 8, or 500 for diloco"},
      {"ps.small_workers", ps<&C::small_workers>(), between(0, 4096), "workers",
       "for dual_batch: how many, the last ones, have a smaller batch than ps.worker_batch (sluice batch-plan)"},
      {"ps.extra_time", ps<&C::extra_time>(), real_at_least(1), "",
       "for dual_batch: by how much an epoch may take longer than with large batches alone"},
      {"ps.merge", ps<&C::merge>(), words({"half", "besides", "mean"}), "",
       "for dual_batch: how pushed weights w of factor f are taken in; half: ((2 - f) W + f w) / 2; besides: (W + f w) "
       "/ (1 + f); mean: of every worker, weighed by f"},
      {"ps.outer_lr", ps<&C::outer_lr>(), above(0), "", "for diloco: learning rate of the server's Nesterov step"},
      {"ps.outer_momentum", ps<&C::outer_momentum>(), fraction(), "", "for diloco: its momentum"},
  };
}

// Keys of the server: how it applies and stores pushes, and how pushes are encoded.
Keys keys_of_server() {
  using C = PsConfig;
  return {
      {"ps.lr_by", ps<&C::lr_by>(), words({"updates", "examples"}), "",
       "what the learning-rate schedule counts; examples: in units of an update of whole batches"},
      {"ps.nesterov_delay", ps<&C::nesterov_delay>(), between(0, 4096), "updates",
       "delayed Nesterov where each push is an update: it takes one so many-th of its gradient, and each so many-th of "
       "them brings momentum, by train.nesterov or for diloco by ps.outer_momentum; 0: each does all of it"},
      {"ps.log", ps<&C::log>(), words({"off", "process", "disk"}), "",
       "whether pushes since the newest checkpoint outlive the server; off: no; process: they are written to the run "
       "directory before they are acknowledged; disk: and outlive the machine",
       kHow | kPerWorker},
      {"ps.push_compression", ps<&C::push_compression>(), words({"none", "bf16", "topk"}), "",
       "how gradients, or what weights have moved, travel to the server; bf16: two bytes a number, rounded to nearest; "
       "topk: the ps.topk_ratio of largest magnitude of each shard. What is left out is added to the worker's next "
       "push. Not with dual_batch and local_sgd"},
      {"ps.pull_compression", ps<&C::pull_compression>(), words({"none", "bf16", "topk"}), "",
       "likewise, how what weights have changed by since a worker's last step travels to it; the server keeps a copy "
       "of them for each worker"},
      {"ps.topk_ratio", ps<&C::topk_ratio>(), RealRange{.low = 0, .high = 1, .low_open = true}, "",
       "for topk: how many of a shard's numbers are sent, at least one; each takes four bytes more than in a whole "
       "shard"},
  };
}

}  // namespace

Keys ps_keys() { return joined({keys_of_workers, keys_of_stalls, keys_of_local_training, keys_of_server}); }

}  // namespace sluice::config::internal
