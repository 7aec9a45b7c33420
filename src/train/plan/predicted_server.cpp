#include "train/plan/predicted_server.h"

#include <vector>

#include "core/concat.h"
#include "core/text.h"
#include "ps/compression.h"
#include "train/plan/profile_overheads.h"
#include "train/setup/server_settings.h"

namespace sluice::train {
namespace {

bool is_measured_alike(const config::PsConfig& ps, const profiler::MeasuredServer& server) {
  const bool takes_ratio = ps.push_compression == "topk" || ps.pull_compression == "topk";
  return server.push_compression == ps.push_compression && server.pull_compression == ps.pull_compression &&
         (!takes_ratio || server.topk_ratio == ps.topk_ratio);
}

std::string why_not_predicted(const config::Config& config, const profiler::LayerProfile& profile) {
  const config::PsConfig& ps = config.ps;
  const ps::SyncPolicy policy = policy_of_server(ps);
  if (ps.clock != "real") return concat("ps.clock = \"", ps.clock, "\" uses the times that [ps] sets");
  if (workers_update(config))
    return concat("workers with ps.policy = \"", ps.policy, "\" make local steps between pushes");
  if (policy.quorum > 1 && policy.quorum < ps.workers)
    return concat("an update takes the pushes of ", policy.quorum, " of ", ps.workers, " workers");
  if (!profile.server)
    return "the profile has no `server`; measure again with `sluice profile` and replicas.sync = \"ps\"";
  if (!is_measured_alike(ps, *profile.server))
    return "the profile's `server` was measured with another compression; measure again with `sluice profile`";
  return "";
}

}  // namespace

bool is_on_one_machine(const config::Config& config) {
  return config.replicas.has_server() && config.ps.clock == "real" && config.ps.keys.empty();
}

std::optional<tune::ServerUse> server_use(const config::Config& config, const profiler::LayerProfile& profile) {
  if (!config.replicas.has_server() || !why_not_predicted(config, profile).empty()) return std::nullopt;
  const config::PsConfig& ps = config.ps;
  const profiler::Fingerprint& print = profile.fingerprint;
  const int quorum = policy_of_server(ps).quorum;
  const bool share_cores = is_on_one_machine(config) && is_of_cpu(profile);
  return tune::ServerUse{.cost = profile.server->cost,
                         .workers = ps.workers,
                         .servers = ps.servers,
                         .waits_for_all = quorum == 0 || quorum >= ps.workers,
                         .goes_ahead = ps.push_compression == "none",
                         .deviation = profile.step ? profile.step->compute_deviation : 0,
                         .cores = share_cores ? print.cores : 0,
                         .threads = config.pipeline.stages * config.replicas.local * print.threads_per_device};
}

double transferred_bytes(const config::Config& config, double bytes) {
  const at::ScalarType dtype = config.train.precision == "fp64" ? at::kDouble : at::kFloat;
  const auto elements = static_cast<std::int64_t>(bytes) / static_cast<std::int64_t>(c10::elementSize(dtype));
  const ps::LinkCompression link = compression_options(config.ps);
  return static_cast<double>(ps::packed_bytes(link.push, dtype, elements) +
                             ps::packed_bytes(link.pull, dtype, elements));
}

std::string server_left_out(const config::Config& config, const profiler::LayerProfile& profile) {
  if (!config.replicas.has_server()) return "";
  if (const std::string why = why_not_predicted(config, profile); !why.empty())
    return concat(
        "replicas.sync = \"ps\": this predicts a worker that updates its own weights, without pushes, pulls and "
        "waiting for other workers (`simulate --sync` includes the waiting), because ",
        why);
  std::vector<std::string> parts;
  if (config.ps.time_limit_s > 0) parts.emplace_back("steps that ps.time_limit_s cuts short");
  if (config.ps.induce != "none") parts.emplace_back("stalls (ps.induce)");
  if (config.ps.grace_s > 0) parts.emplace_back("waiting for ps.grace_s");
  if (config.ps.log != "off") parts.emplace_back("writing pushes to the log (ps.log)");
  if (!config.ps.keys.empty())
    parts.emplace_back("encryption, and the network between machines (push and pull were measured on one machine)");
  return parts.empty() ? "" : concat("replicas.sync = \"ps\": the prediction leaves out ", join(parts, ", "));
}

std::string server_left_out_of_cluster(const config::Config& config) {
  if (!config.replicas.has_server()) return "";
  return "replicas.sync = \"ps\": the prediction leaves out the parameter server; the cluster's replicas all-reduce "
         "their gradients";
}

}  // namespace sluice::train
