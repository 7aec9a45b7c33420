// layer_profile: what `sluice profile` measures, as values and as the text of profile.json (docs/reference/profile_file.md), so that
// plans can be made on another machine. Not here: measuring (train/study/profile.h), deciding (tune/).
// The text is one JSON object of schema version kProfileVersion. Reading takes every field as documented, passes over
// fields that it does not know, and refuses everything else.
// Units: seconds, bytes, bytes per second. Threads: values. Errors: ConfigError names the file and the field.
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

// How times were obtained.
inline constexpr auto kTimedByClock = "clock";    // by the host's, after each part
inline constexpr auto kTimedByEvents = "events";  // by events around repeated calls (gpu_repeat_timing.h)
inline constexpr auto kTimedByCupti = "cupti";    // by the records of the kernels of such calls

// One call of a layer's part on a GPU.
struct CallTime {
  double events_s = 0;              // between events
  double host_s = 0;                // until it is enqueued
  std::optional<double> kernels_s;  // sum of its kernels; nothing where they are not recorded

  bool operator==(const CallTime&) const = default;
};

struct GpuTimes {
  CallTime forward;
  CallTime input_gradient;
  CallTime weight_gradient;
  bool is_launch_bound = false;  // the host takes longer for the three than the GPU

  bool operator==(const GpuTimes&) const = default;
};

// The best of several measurements at one micro-batch size.
struct LayerTimes {
  std::int64_t samples = 0;
  double forward_s = 0;
  double input_gradient_s = 0;
  double weight_gradient_s = 0;
  double backward_s = 0;  // of one that puts no weight gradient off
  std::string timed_by = kTimedByClock;
  std::optional<GpuTimes> gpu;  // if its calls were repeated on a GPU

  bool operator==(const LayerTimes&) const = default;
};

// What micro-batches take of up to so many samples, and of more than those of the line before: fields of LayerCost,
// lines through what the two sizes took. Kernels change with the size, and their memory with them.
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
  bool defers_weights = false;    // some of its weight gradients can be computed apart from those of the input
  LayerCost cost;                 // with the points of `times`, and the bytes of the configured micro-batch
  std::vector<LayerTimes> times;  // what cost's lines were fitted to
  std::vector<LayerBytes> bytes;  // samples ascending; empty: those of `cost` are all that is known
};

// One activation from a stage to the next.
struct StageLink {
  int from_stage = 0;
  int to_stage = 0;
  std::string from_device;
  std::string to_device;
  LinkCost cost;
};

// The sum of one buffer over all replicas.
struct AllReduceLink {
  int processes = 1;
  int local_replicas = 1;
  LinkCost cost;
};

// What one parameter server of this machine cost a worker on it (measure/measure_server.h), by all bytes of
// the weights whatever part of them travels: so it holds where as little is sent.
struct MeasuredServer {
  ServerCost cost;
  std::string push_compression;  // ps.push_compression, ps.pull_compression and ps.topk_ratio
  std::string pull_compression;
  double topk_ratio = 0;
};

// Whole training steps under the configured plan, and what the costs of layers and links say of them (tune/predict.h).
struct StepSummary {
  int steps = 0;  // with a whole batch
  double median_s = 0;
  double median_without_load_s = 0;  // what predicted_s is to be compared with
  double fastest_s = 0;
  double samples_per_s = 0;          // at the median, over all processes
  double predicted_s = 0;            // without loading
  double predicted_allreduce_s = 0;  // of it, all-reduce that nothing hides
  double predicted_update_s = 0;     // and the optimizer
  double compute_s = 0;              // forward and backward, mean of the devices, median of the steps
  double predicted_compute_s = 0;    // what the layers alone say of it
  double compute_deviation = 0;      // of a device's from step to step, as a share of it; robust
  double other_s = 0;                // that neither layers, links, sums, update nor loading explain
};

// What a stage kept at most between the actions of its micro-batches, counted and by the simulator
// (pipeline/live_bytes.h).
struct StageMemory {
  int stage = 0;
  std::string device;
  std::uint64_t live_bytes = 0;
  std::uint64_t predicted_live_bytes = 0;
};

// All that a device's tensors took at most, what actions take while they run included.
struct DeviceMemory {
  std::string device;
  std::uint64_t peak_bytes = 0;
  std::uint64_t predicted_peak_bytes = 0;
};

// What other programs spoil in a profile.
struct ProfileQuality {
  // Slow-down of layers beside other devices, mean by their times. On a quiet machine at most the number of devices.
  double slowdown = 1;
  // Of times beside the line between the next smaller and larger size. On a quiet machine 0.02 to 0.12.
  std::optional<double> scatter;
  double compute_scale = 1;  // LayerProfile::compute_scale(). On a quiet machine 0.9 to 1.1.
};

struct LayerProfile {
  Fingerprint fingerprint;
  std::int64_t micro_batch = 0;  // samples, as configured
  int contenders = 1;  // devices that ran at the same time where LayerCost::slowdown was measured; 1: none did
  std::vector<MeasuredLayer> layers;
  std::vector<StageLink> stage_links;  // of replica 0, first border first
  // Of the configured replicas; with one replica on several CPU devices, of as many replicas as these could be.
  std::vector<AllReduceLink> all_reduces;
  std::optional<AffineCost> update;           // of a stage's weights, by their bytes
  std::optional<AffineCost> update_together;  // the same on all CPU devices at once; nothing with one
  std::optional<LoadCost> load;               // nothing: no data set was there
  std::string load_of;                        // a hash of how samples were made; empty: not known
  std::optional<MeasuredServer> server;       // nothing: the configuration has none
  std::optional<StepSummary> step;
  std::vector<StageMemory> stage_memory;    // of replica 0, in one more step
  std::vector<DeviceMemory> device_memory;  // of this process, in that step; empty where memory is not counted

  // With times as steps have them: what was measured of a layer alone, with its data in the caches, times
  // compute_scale().
  [[nodiscard]] std::vector<LayerCost> costs() const;
  // With the bytes of micro-batches of so many samples, and a first use in a step only where they transform weights.
  [[nodiscard]] std::vector<LayerCost> costs_at(std::int64_t samples) const;
  // The same with no less than any kernel takes that may run: where no such micro-batch was measured, the most of the
  // lines around it, for which kernels change where is not known; beyond the largest, as much a sample as that took.
  [[nodiscard]] std::vector<LayerCost> most_at(std::int64_t samples) const;
  // Computing in whole steps beside what the layers alone say of it; 1 where no steps were run.
  [[nodiscard]] double compute_scale() const;
  [[nodiscard]] ProfileQuality quality() const;
  // "slow-down 1.08, times scatter by 3.0 %, steps 1.02 times as long as their layers"
  [[nodiscard]] std::string describe_quality() const;
  // Names the numbers of quality() that no quiet machine gives; empty if there are none.
  [[nodiscard]] std::string disturbance() const;
  // That of so many processes with so many replicas each, or of the least larger number of replicas measured, or of the
  // largest; null: none was measured of so many processes.
  [[nodiscard]] const LinkCost* all_reduce_of(int processes, int local_replicas) const;
};

// Takes the bytes over.
void set_bytes(LayerCost& cost, const LayerBytes& bytes);
// Of micro-batches of so many samples. Requires: there are some.
[[nodiscard]] const LayerBytes& bytes_of(const std::vector<LayerBytes>& bytes, std::int64_t samples);

// The lines and points of the layer's times.
void set_costs(MeasuredLayer& layer);

[[nodiscard]] std::string to_json_text(const LayerProfile& profile);  // ends with a line break

// file: for messages.
[[nodiscard]] LayerProfile parse_profile(std::string_view text, const std::string& file);
[[nodiscard]] LayerProfile read_profile(const std::filesystem::path& file);
// Whether it calls itself a profile, of whatever version. No error: false also where it cannot be read.
[[nodiscard]] bool is_profile(const std::filesystem::path& file);

}  // namespace sluice::profiler
