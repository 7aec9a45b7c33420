// layer_profile: the measurements of `sluice profile`, as values and as profile.json (docs/reference/profile_file.md).
// Reading ignores unknown fields and rejects all other deviations. Units: seconds, bytes, bytes per second. Errors:
// ConfigError names the file and the field.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/layer_cost.h"
#include "core/link_cost.h"
#include "core/load_cost.h"
#include "core/server_cost.h"
#include "profiler/fingerprint.h"

namespace sluice::profiler {

inline constexpr int kProfileVersion = 8;

inline constexpr auto kTimedByClock = "clock";    // host clock after each part
inline constexpr auto kTimedByEvents = "events";  // events around repeated calls (gpu_repeat_timing.h)
inline constexpr auto kTimedByCupti = "cupti";    // kernel records of repeated calls

struct CallTime {
  double events_s = 0;
  double host_s = 0;
  std::optional<double> kernels_s;  // sum of its kernels; empty if not recorded

  bool operator==(const CallTime&) const = default;
};

struct GpuTimes {
  CallTime forward;
  CallTime input_gradient;
  CallTime weight_gradient;
  bool is_launch_bound = false;  // the three parts take longer on the host than on the GPU

  bool operator==(const GpuTimes&) const = default;
};

struct LayerTimes {
  std::int64_t samples = 0;
  double forward_s = 0;
  double input_gradient_s = 0;
  double weight_gradient_s = 0;
  double backward_s = 0;  // without deferring weight gradients
  std::string timed_by = kTimedByClock;
  std::optional<GpuTimes> gpu;  // set if calls were repeated on a GPU

  bool operator==(const LayerTimes&) const = default;
};

// Bytes of micro-batches of up to `samples`, above those of the previous entry, as lines through two measured sizes.
struct LayerBytes {
  std::int64_t samples = 0;
  AffineBytes saved;
  bool saves_input = false, saves_output = false;
  AffineBytes loss, loss_working;
  AffineBytes stash;
  bool stashes_input = false, stashes_output_gradient = false;
  WorkingBytes working;
  std::uint64_t transformed = 0;
  std::optional<WorkingBytes> working_once = {};
};

struct MeasuredLayer {
  std::string name;
  bool defers_weights = false;    // some weight gradients can be computed separately from the input gradients
  LayerCost cost;                 // with the points of `times` and the bytes of the configured micro-batch
  std::vector<LayerTimes> times;  // measurements behind cost's lines
  std::vector<LayerBytes> bytes;  // samples ascending; empty: only the bytes of `cost` are known
};

struct StageLink {
  int from_stage = 0;
  int to_stage = 0;
  std::string from_device;
  std::string to_device;
  LinkCost cost;
};

struct AllReduceLink {
  int processes = 1;
  int local_replicas = 1;
  LinkCost cost;
};

// Cost of one local parameter server for a worker (measure/measure_server.h), per byte of all weights.
struct MeasuredServer {
  ServerCost cost;
  std::string push_compression;
  std::string pull_compression;
  double topk_ratio = 0;
};

struct StepSummary {
  int steps = 0;
  double median_s = 0;
  double median_without_load_s = 0;  // comparable with predicted_s
  double fastest_s = 0;
  double samples_per_s = 0;          // at the median, over all processes
  double predicted_s = 0;            // without loading
  double predicted_allreduce_s = 0;  // exposed all-reduce within predicted_s
  double predicted_update_s = 0;     // optimizer within predicted_s
  double compute_s = 0;              // forward and backward, mean of the devices, median of the steps
  double predicted_compute_s = 0;    // from the layers alone
  double compute_deviation = 0;      // relative deviation of a device from step to step; robust
  double other_s = 0;                // not explained by layers, links, sums, update or loading
};

struct StageMemory {
  int stage = 0;
  std::string device;
  std::uint64_t live_bytes = 0;
  std::uint64_t predicted_live_bytes = 0;
};

// Peak bytes of a device's tensors, including working memory of actions.
struct DeviceMemory {
  std::string device;
  std::uint64_t peak_bytes = 0;
  std::uint64_t predicted_peak_bytes = 0;
};

// Signs of disturbance by other programs.
struct ProfileQuality {
  // Mean slow-down of layers beside other devices, weighted by time. At most the number of devices on a quiet machine.
  double slowdown = 1;
  // Deviation of times from a line between the neighbouring sizes. 0.02 to 0.12 on a quiet machine.
  std::optional<double> scatter;
  double compute_scale = 1;  // LayerProfile::compute_scale(); 0.9 to 1.1 on a quiet machine
};

struct LayerProfile {
  Fingerprint fingerprint;
  std::int64_t micro_batch = 0;  // samples, as configured
  // Devices that ran together when LayerCost::slowdown was measured; 1: not measured.
  int contenders = 1;
  std::vector<MeasuredLayer> layers;
  std::vector<StageLink> stage_links;  // of replica 0, first border first
  // Sums over the configured replicas. If one replica has several CPU devices: over as many replicas as devices.
  std::vector<AllReduceLink> all_reduces;
  std::optional<AffineCost> update;           // of a stage's weights, by their bytes
  std::optional<AffineCost> update_together;  // on all CPU devices at once; empty with one
  std::optional<LoadCost> load;               // empty: there was no data set
  std::string load_of;                        // a hash of how samples were made; empty: unknown
  std::optional<MeasuredServer> server;       // empty: not configured
  std::optional<StepSummary> step;
  std::vector<StageMemory> stage_memory;
  std::vector<DeviceMemory> device_memory;  // of this process, in that step; empty if memory is not counted

  // Costs as in whole steps: times measured alone, with data in the caches, are multiplied by compute_scale().
  [[nodiscard]] std::vector<LayerCost> costs() const;
  // Costs of micro-batches of this size. First-use times apply only if they transform weights.
  [[nodiscard]] std::vector<LayerCost> costs_at(std::int64_t samples) const;
  // Like costs_at(), but never below what any kernel needs that may run: between measured sizes the maximum of their
  // lines, beyond the largest that size's bytes per sample.
  [[nodiscard]] std::vector<LayerCost> most_at(std::int64_t samples) const;
  // Compute time in whole steps relative to the layers alone; 1 if no steps were run.
  [[nodiscard]] double compute_scale() const;
  [[nodiscard]] ProfileQuality quality() const;
  // "slow-down 1.08, times scatter by 3.0 %, steps 1.02 times as long as their layers"
  [[nodiscard]] std::string describe_quality() const;
  // Names the values of quality() that are out of range for a quiet machine; empty if there are none.
  [[nodiscard]] std::string disturbance() const;
  // If the link was not measured: of the next larger number of local replicas, or else the largest. May be null.
  [[nodiscard]] const LinkCost* all_reduce_of(int processes, int local_replicas) const;
};

void set_bytes(LayerCost& cost, const LayerBytes& bytes);
[[nodiscard]] const LayerBytes& bytes_of(const std::vector<LayerBytes>& bytes, std::int64_t samples);

void set_costs(MeasuredLayer& layer);

[[nodiscard]] std::string to_json_text(const LayerProfile& profile);

[[nodiscard]] LayerProfile parse_profile(std::string_view text, const std::string& file);
[[nodiscard]] LayerProfile read_profile(const std::filesystem::path& file);
// Whether the file declares itself a profile, of any version. False, without an error, if it cannot be read.
[[nodiscard]] bool is_profile(const std::filesystem::path& file);

}  // namespace sluice::profiler
