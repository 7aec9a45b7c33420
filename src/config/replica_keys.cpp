// replica_keys: the keys of [replicas].
#include "config/keys.h"

namespace sluice::config::internal {
namespace {

template <auto kMember>
Field of_replicas() {
  return field<&Config::replicas, kMember>();
}

}  // namespace

Keys replica_keys() {
  using C = ReplicasConfig;
  return {
      {"replicas.local", of_replicas<&C::local>(), between(1, 1024), "replicas",
       "Replicas of the pipeline in each process", kHow | kPerWorker | kTuned},
      {"replicas.shares", of_replicas<&C::shares>(), words({"equal", "measured"}), "",
       "How the samples of a batch are divided among the replicas of all processes. equal: as evenly as possible. "
       "measured: by the speed of each replica, measured during the run. A list: relative shares, such as [2, 1], in "
       "the order of ranks. Gradients are the mean over all samples in each case",
       kHow},
      {"replicas.sync", of_replicas<&C::sync>(), words({"allreduce", "ps", "none"}), "",
       "How replicas synchronise. allreduce: they sum their gradients. ps: through a parameter server, see [ps]. "
       "none: not at all"},
      {"replicas.backend", of_replicas<&C::backend>(), words({"auto", "nccl", "gloo"}), "",
       "Transport of gradients between processes. auto: NCCL between GPUs, otherwise Gloo", kHow | kAdvanced},
      {"replicas.bucket_mb", of_replicas<&C::bucket_mb>(), RealRange{.low = 0, .high = 65'536, .low_open = true}, "MiB",
       "Size of a gradient bucket; the gradients in a bucket are reduced together", kHow | kAdvanced},
      {"replicas.bucket_type", of_replicas<&C::bucket_type>(), words({"full", "bf16"}), "",
       "Number format of gradient sums between processes. full: the type of the gradients. bf16: half the bytes of "
       "float32; each process's share and each sum of two are rounded to 8 bits",
       kAdvanced},
      {"replicas.connect_timeout_s", of_replicas<&C::connect_timeout_s>(), real_between(0.001, 1e6), "s",
       "How long a process waits until all processes of the run have started", kHow | kPerProcess | kAdvanced},
      {"replicas.hang_timeout_s", of_replicas<&C::hang_timeout_s>(), real_between(5, 1e6), "s",
       "A process without a sign of life for this long counts as lost, and the run ends within two seconds, or goes on "
       "with replicas.elastic",
       kHow | kPerProcess | kAdvanced},
      {"replicas.elastic", of_replicas<&C::elastic>(), any(), "",
       "If a process is lost, the others make its part of that step again and go on without it. Processes that start "
       "later join. If false, a loss ends the run",
       kHow},
      {"replicas.min", of_replicas<&C::min>(), at_least(1), "processes",
       "With replicas.elastic: if fewer processes are left, the run saves a checkpoint and ends", kHow},
  };
}

}  // namespace sluice::config::internal
