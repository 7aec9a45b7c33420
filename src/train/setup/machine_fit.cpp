#include "train/setup/machine_fit.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>

#include "core/concat.h"
#include "core/divided_up.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "device/cpu_threads.h"
#include "measure/bf16_cost.h"

namespace sluice::train {
namespace {

struct Threads {
  int slots = 0;
  std::int64_t threads = 0;
  int cores = 1;

  [[nodiscard]] std::string describe(int of_device) const {
    return concat("device.threads = ", of_device, " makes ", threads, " threads on ", counted(slots, "CPU device"),
                  ", but there are ", counted(cores, "core"));
  }
};

Threads count_threads(const Setup& setup) {
  const auto processes = static_cast<int>(std::lround(1 / share_of_cores(setup.process)));
  const int slots = cpu_slots(setup.devices) * processes;
  return {slots, std::int64_t{setup.cpu_threads} * slots, device::available_cores()};
}

constexpr const char* kShareEvenly = "device.threads = 0 shares the cores evenly";

void warn_of_useless_cache(const Setup& setup) {
  const config::Config& config = setup.config;
  if (config.freeze.cache == "off") return;
  const std::string cache = concat("freeze.cache = \"", config.freeze.cache, "\" keeps ");
  if (!keeps_features(config)) {
    log_warning(cache, "nothing: freeze.policy = \"none\" freezes no layers");
    return;
  }
  const std::int64_t views = config.data.views, epochs = epochs_of(setup);
  if (views <= 1 || views + 1 < epochs) return;
  log_warning(cache, "no training samples: the first of ", counted(epochs, "epoch"),
              " freezes nothing, and the later ones repeat none of the ", views, " data.views; set data.views lower");
}

void warn_of_slow_bf16(const Setup& setup) {
  const auto is_cpu = [](const device::Device& device) { return device.kind == device::DeviceKind::kCpu; };
  if (!setup.model.in_bf16 || std::ranges::none_of(setup.devices, is_cpu)) return;
  constexpr double kSlow = 1.5;
  const double slowdown = measure::bf16_slowdown();
  if (slowdown < kSlow) return;
  log_warning(concat(
      "train.precision = \"bf16\": this CPU has no fast instructions for it (AVX512-BF16 or AMX); a matrix product "
      "takes ",
      fixed(slowdown, 1), " times as long as in float32 (measured); set train.precision = \"fp32\" here"));
}

}  // namespace

void warn_of_unusual_settings(const Setup& setup) {
  if (setup.process.rank > 0) return;
  warn_of_slow_bf16(setup);
  warn_of_useless_cache(setup);
  if (const std::int64_t asked = config::step_batch(setup.config); asked > setup.global_batch) {
    log_warning(setup.config.replicas.has_server() ? "ps.worker_batch = " : "train.global_batch = ", asked,
                " is more than the ", counted(setup.global_batch, "sample"), " of ", setup.train_set->info().name,
                ": each step uses all of them, and an epoch is one step");
  }
  constexpr std::int64_t kManyPerCore = 4;
  if (const Threads all = count_threads(setup); setup.cpu_threads > 1 && all.threads > kManyPerCore * all.cores) {
    log_warning(all.describe(setup.cpu_threads), ": they take turns, which is slow; ", kShareEvenly);
  }
}

void log_own_cores(const Setup& setup) {
  const int all = device::available_cores();
  const bool takes_share = cpu_slots(setup.devices) > 0 && setup.config.device.threads == 0;
  if (!takes_share || own_cores(setup.process) >= all) return;
  const int threads = setup.cpu_threads * cpu_slots(setup.devices);
  log_info("this process computes with ", counted(threads, "thread"), " on ", counted(all, "core"),
           ", which it shares with other processes of this machine");
}

void refuse_too_many_threads(const Setup& setup) {
  constexpr std::int64_t kMostPerCore = 64;
  const Threads all = count_threads(setup);
  if (setup.cpu_threads == 1 || all.threads <= kMostPerCore * all.cores) return;
  throw ConfigError(
      concat(all.describe(setup.cpu_threads), ", and the limit is ", kMostPerCore, " a core; ", kShareEvenly));
}

void refuse_too_few_open_files(int processes) {
  constexpr rlim_t kAlone = 32, kOfEachOther = 8;  // a run of one process has 10 open, a run of two has 39
  const rlim_t needed = kAlone + kOfEachOther * static_cast<rlim_t>(processes - 1);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  too_many_open_files(concat("this process may open ", limit.rlim_cur,
                             " files and sockets at a time, and the run needs about ", needed));
}

void refuse_too_large_batch(const Setup& setup) {
  const data::DatasetInfo& info = setup.train_set->info();
  if (info.kind == SampleKind::kTensors) return;
  const auto sample = static_cast<double>(info.kind == SampleKind::kImage
                                              ? setup.model.channels * setup.model.image_size * setup.model.image_size *
                                                    c10::elementSize(setup.model.dtype)
                                              : 2 * info.context * sizeof(std::int64_t));
  const double bytes = sample * static_cast<double>(divided_up(setup.global_batch, setup.process.processes));
  const std::uint64_t memory = device::list_devices().front().memory_bytes;
  if (bytes <= static_cast<double>(memory)) return;
  throw OutOfMemoryError("train.global_batch = ", setup.global_batch, " makes batches of ",
                         human_bytes(static_cast<std::uint64_t>(bytes)), " in each process, and this machine has ",
                         human_bytes(memory), " of memory; set a smaller batch");
}

}  // namespace sluice::train
