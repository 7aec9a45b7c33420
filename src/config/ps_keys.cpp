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
       "For replicas.sync = \"ps\": which pushes make an update. bsp, fmb: one push of every worker. ssp: each push; "
       "a worker may be at most ps.staleness ahead of the slowest. asp: each push. quorum: the pushes of ps.quorum "
       "workers. amb: as fmb, but workers stop computing after ps.time_limit_s. dual_batch: each push of weights, "
       "which a worker makes after its share of an epoch; ps.small_workers of the workers use a smaller batch. "
       "local_sgd: the mean of all weights after ps.local_steps local steps. diloco: as local_sgd, but the change of "
       "the weights is the gradient of an outer step"},
      {"ps.clock", ps<&C::clock>(), words({"real", "virtual"}), "",
       "real: the server and its workers are processes (ps.placement). virtual: one process runs the server and all "
       "workers in turn, on a clock that advances by modelled times (ps.sample_s, ps.step_s, ps.bytes_per_s, "
       "ps.induce)",
       kAdvanced},
      {"ps.placement", ps<&C::placement>(), words({"rank0", "servers"}), "",
       "Which process is the server. rank0: the first process of the launch; the others are its workers. servers: the "
       "process of `sluice serve`; all processes of the launch are workers",
       kHow | kAfterRecovery},
      {"ps.address", ps<&C::address>(), any(), "",
       "HOST:PORT of the server; several servers are separated by commas. If only the first is given, the others are "
       "on the same machine at the following ports. Empty: the address of rank 0 of the launch (--init, MASTER_ADDR "
       "and MASTER_PORT)",
       kHow | kPerWorker},
      {"ps.keys", ps<&C::keys>(), any(), "",
       "Folder with server.pub, and for the server also server.key (`sluice make-keys`). All traffic is then "
       "encrypted, and only processes with the keys can connect. Empty: no encryption, and the server listens on "
       "127.0.0.1 only",
       kHow | kPerWorker | kAdvanced},
      {"ps.workers", ps<&C::workers>(), between(1, 4096), "workers",
       "Workers of the server; each is a pipeline. With ps.placement = \"rank0\": all processes except the servers"},
      {"ps.worker_batch", ps<&C::worker_batch>(), at_least(0), "samples",
       "Samples per step of a worker. 0: train.global_batch / ps.workers", kPerWorker},
      {"ps.servers", ps<&C::servers>(), between(1, 64), "servers",
       "Server processes, each with a part of the parameters. The first decides when updates are made and writes the "
       "records. The others are processes of `sluice serve --server N`; with ps.placement = \"rank0\", the next ranks "
       "of the launch",
       kHow | kAdvanced},
      {"ps.shards", ps<&C::shards>(), between(1, 1024), "shards", "Parts into which each server divides its parameters",
       kHow | kAdvanced},
      {"ps.quorum", ps<&C::quorum>(), between(0, 4096), "workers",
       "Workers whose pushes make an update. 0: all. auto: set by the policy; for quorum, more than half", kAdvanced},
      {"ps.staleness", ps<&C::staleness>(), between(-1, 1'000'000), "pushes",
       "Pushes that a worker may be ahead of the slowest worker when it begins a step. -1: any number. auto: set by "
       "the policy; 3 for ssp"},
      {"ps.grace_s", ps<&C::grace_s>(), real_at_least(0), "s",
       "How long an update waits for more pushes after its quorum is complete", kAdvanced},
      {"ps.time_limit_s", ps<&C::time_limit_s>(), real_at_least(0), "s",
       "Time after which a worker begins no further slice of its step; the first slice always runs, and stalls count. "
       "0: no limit"},
      {"ps.partitions", ps<&C::partitions>(), between(0, 65'536), "slices",
       "Slices (micro-batches) of a worker's step; the worker checks the time limit between them. 0: pipeline.chunks",
       kPerWorker | kAdvanced},
  };
}

Keys keys_of_stalls() {
  using C = PsConfig;
  return {
      {"ps.induce", ps<&C::induce>(), words({"none", "ec2", "cedar", "exponential"}), "",
       "Artificial stalls of a worker before each step, drawn with train.seed. ec2, cedar: the mixtures of the "
       "anytime project. exponential: ps.induce_shift_s plus an exponential with mean ps.induce_mean_s",
       kAfterRecovery | kAdvanced},
      {"ps.induce_scale", ps<&C::induce_scale>(), above(0), "", "Factor on these stalls", kAfterRecovery | kAdvanced},
      {"ps.induce_shift_s", ps<&C::induce_shift_s>(), real_at_least(0), "s",
       "Constant part of each stall, for ps.induce = \"exponential\"", kAfterRecovery | kAdvanced},
      {"ps.induce_mean_s", ps<&C::induce_mean_s>(), real_at_least(0), "s",
       "Mean of the random part of each stall, for ps.induce = \"exponential\"", kAfterRecovery | kAdvanced},
      {"ps.sample_s", ps<&C::sample_s>(), real_at_least(0), "s", "Virtual time that a worker takes per sample",
       kAdvanced},
      {"ps.step_s", ps<&C::step_s>(), real_at_least(0), "s",
       "Virtual time that a worker takes per step in addition; with ps.time_limit_s, per slice of a step", kAdvanced},
      {"ps.bytes_per_s", ps<&C::bytes_per_s>(), real_at_least(0), "bytes/s",
       "Virtual speed between a worker and the server, in each direction. 0: transfers take no time", kAdvanced},
  };
}

Keys keys_of_local_training() {
  using C = PsConfig;
  return {
      {"ps.local_steps", ps<&C::local_steps>(), between(0, 1'000'000), "steps",
       "Local optimizer steps of a worker between pushes. 0: set by the policy; 8 for local_sgd, 500 for diloco",
       kAdvanced},
      {"ps.small_workers", ps<&C::small_workers>(), between(0, 4096), "workers",
       "For dual_batch: workers with a smaller batch than ps.worker_batch, the last ones (`sluice batch-plan`)",
       kAdvanced},
      {"ps.extra_time", ps<&C::extra_time>(), real_at_least(1), "",
       "For dual_batch: factor by which an epoch may take longer than with large batches alone", kAdvanced},
      {"ps.merge", ps<&C::merge>(), words({"half", "besides", "mean"}), "",
       "For dual_batch: how pushed weights w with factor f change the server's weights W. half: ((2 - f) W + f w) / "
       "2. besides: (W + f w) / (1 + f). mean: the mean over all workers, weighted by f",
       kAdvanced},
      {"ps.outer_lr", ps<&C::outer_lr>(), above(0), "", "For diloco: learning rate of the server's Nesterov step",
       kAdvanced},
      {"ps.outer_momentum", ps<&C::outer_momentum>(), fraction(), "",
       "For diloco: momentum of the server's Nesterov step", kAdvanced},
  };
}

Keys keys_of_server() {
  using C = PsConfig;
  return {
      {"ps.lr_by", ps<&C::lr_by>(), words({"updates", "examples"}), "",
       "What the learning-rate schedule counts. updates: updates of the server. examples: processed samples, in units "
       "of an update of whole batches",
       kAdvanced},
      {"ps.nesterov_delay", ps<&C::nesterov_delay>(), between(0, 4096), "updates",
       "Delayed Nesterov momentum, if each push is an update. An update applies 1/N of its gradient, and every Nth "
       "update also the momentum of train.nesterov, or of ps.outer_momentum for diloco. 0: each update applies all of "
       "both",
       kAdvanced},
      {"ps.log", ps<&C::log>(), words({"off", "process", "disk"}), "",
       "Whether pushes since the newest checkpoint survive a failure. off: no. process: they survive the server "
       "process; they are written to the run directory before they are acknowledged. disk: they also survive a crash "
       "of the machine",
       kHow | kPerWorker | kAdvanced},
      {"ps.push_compression", ps<&C::push_compression>(), words({"none", "bf16", "topk"}), "",
       "Encoding of gradients or weight changes on their way to the server. bf16: two bytes per number, rounded to "
       "nearest. topk: the share ps.topk_ratio of each shard with the largest magnitudes. What is left out is added "
       "to the worker's next push. Not with dual_batch and local_sgd",
       kAdvanced},
      {"ps.pull_compression", ps<&C::pull_compression>(), words({"none", "bf16", "topk"}), "",
       "Encoding of weight changes on their way to a worker, with the same values as ps.push_compression. The server "
       "keeps a copy of the weights for each worker",
       kAdvanced},
      {"ps.topk_ratio", ps<&C::topk_ratio>(), RealRange{.low = 0, .high = 1, .low_open = true}, "",
       "For topk: share of a shard's numbers that is sent, at least one number. Each number sent also needs four "
       "bytes for its position",
       kAdvanced},
  };
}

}  // namespace

Keys ps_keys() { return joined({keys_of_workers, keys_of_stalls, keys_of_local_training, keys_of_server}); }

}  // namespace sluice::config::internal
