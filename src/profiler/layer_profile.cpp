#include "profiler/layer_profile.h"

#include <algorithm>
#include <concepts>
#include <fstream>
#include <iterator>

#include "profiler/affine_fit.h"
#include "profiler/fingerprint_fields.h"

namespace sluice::profiler {

// Argument-dependent lookup must find these, so they are not in an anonymous namespace.
template <typename Io>
void fields(Io& io, CallTime& value) {
  io("events_s", value.events_s);
  io("host_s", value.host_s);
  io("kernels_s", value.kernels_s);
}

template <typename Io>
void fields(Io& io, GpuTimes& value) {
  io("forward", value.forward);
  io("input_gradient", value.input_gradient);
  io("weight_gradient", value.weight_gradient);
  io("launch_bound", value.is_launch_bound);
}

template <typename Io>
void fields(Io& io, LayerTimes& value) {
  io("samples", value.samples);
  io("forward_s", value.forward_s);
  io("input_gradient_s", value.input_gradient_s);
  io("weight_gradient_s", value.weight_gradient_s);
  io("backward_s", value.backward_s);
  io.if_there("timed_by", value.timed_by);
  io.if_there("gpu", value.gpu);
}

template <typename Io>
void fields(Io& io, StageLink& value) {
  io("from_stage", value.from_stage);
  io("to_stage", value.to_stage);
  io("from_device", value.from_device);
  io("to_device", value.to_device);
  fields(io, value.cost);
}

template <typename Io>
void fields(Io& io, AllReduceLink& value) {
  io("processes", value.processes);
  io("local_replicas", value.local_replicas);
  fields(io, value.cost);
}

template <typename Io>
void fields(Io& io, StageMemory& value) {
  io("stage", value.stage);
  io("device", value.device);
  io("live_bytes", value.live_bytes);
  io("predicted_live_bytes", value.predicted_live_bytes);
}

template <typename Io>
void fields(Io& io, DeviceMemory& value) {
  io("device", value.device);
  io("peak_bytes", value.peak_bytes);
  io("predicted_peak_bytes", value.predicted_peak_bytes);
}

template <typename Io>
void fields(Io& io, StepSummary& value) {
  io("steps", value.steps);
  io("median_s", value.median_s);
  io("median_without_load_s", value.median_without_load_s);
  io("fastest_s", value.fastest_s);
  io("samples_per_s", value.samples_per_s);
  io("predicted_s", value.predicted_s);
  io("predicted_allreduce_s", value.predicted_allreduce_s);
  io("predicted_update_s", value.predicted_update_s);
  io("compute_s", value.compute_s);
  io("predicted_compute_s", value.predicted_compute_s);
  io("compute_deviation", value.compute_deviation);
  io("other_s", value.other_s);
}

}  // namespace sluice::profiler

namespace sluice {

template <typename Io, typename Cost>
requires(std::same_as<Cost, AffineCost> || std::same_as<Cost, SizedCost>) void fields(Io& io, Cost& value) {
  io("a_s", value.a_s);
  io("b_s", value.b_s);
  io("error", value.error);
}

template <typename Io>
void fields(Io& io, LinkCost& value) {
  io("latency_s", value.latency_s);
  io("bytes_per_s", value.bytes_per_s);
  io("error", value.error);
}

template <typename Io>
void fields(Io& io, LoadCost& value) {
  io("sample_s", value.sample_s);
  io("cpu_s", value.cpu_s);
}

template <typename Io>
void fields(Io& io, AffineBytes& value) {
  io("fixed", value.fixed);
  io("per_sample", value.per_sample);
}

template <typename Io>
void fields(Io& io, WorkingBytes& value) {
  io("forward", value.forward);
  io("backward", value.backward);
  io("input_gradient", value.input_gradient);
  io("weight_gradient", value.weight_gradient);
  io("held_backward", value.held_backward);
  io("held_input_gradient", value.held_input_gradient);
}

}  // namespace sluice

namespace sluice::profiler {

template <typename Io>
void fields(Io& io, LayerBytes& value) {
  io("samples", value.samples);
  io("saved_bytes", value.saved);
  io("saves_input", value.saves_input);
  io("saves_output", value.saves_output);
  io("loss_bytes", value.loss);
  io("loss_working_bytes", value.loss_working);
  io("stash_bytes", value.stash);
  io("stashes_input", value.stashes_input);
  io("stashes_output_gradient", value.stashes_output_gradient);
  io("working_bytes", value.working);
  io("transformed_bytes", value.transformed);
  io.if_there("working_once_bytes", value.working_once);
}

template <typename Io>
void fields(Io& io, MeasuredServer& value) {
  io("push", value.cost.push);
  io("pull", value.cost.pull);
  io("update", value.cost.update);
  io("merge", value.cost.merge);
  io("push_compression", value.push_compression);
  io("pull_compression", value.pull_compression);
  io("topk_ratio", value.topk_ratio);
}

template <typename Io>
void fields(Io& io, MeasuredLayer& value) {
  io("name", value.name);
  io("forward", value.cost.forward);
  io("input_gradient", value.cost.input_gradient);
  io("weight_gradient", value.cost.weight_gradient);
  io("backward", value.cost.backward);
  io("first_forward_s", value.cost.first_forward_s);
  io("first_backward_s", value.cost.first_backward_s);
  io("slowdown", value.cost.slowdown);
  io("puts_off_weights", value.defers_weights);
  io("input_bytes", value.cost.input_bytes);
  io("output_bytes", value.cost.output_bytes);
  io("saved_bytes", value.cost.saved_bytes);
  io("saves_input", value.cost.saves_input);
  io("saves_output", value.cost.saves_output);
  io("loss_bytes", value.cost.loss_bytes);
  io("loss_working_bytes", value.cost.loss_working);
  io("stash_bytes", value.cost.stash_bytes);
  io("stashes_input", value.cost.stashes_input);
  io("stashes_output_gradient", value.cost.stashes_output_gradient);
  io("working_bytes", value.cost.working);
  io("transformed_bytes", value.cost.transformed_bytes);
  io.if_there("working_once_bytes", value.cost.working_once);
  io("parameter_bytes", value.cost.parameter_bytes);
  io("buffer_bytes", value.cost.buffer_bytes);
  io("gradient_bytes", value.cost.gradient_bytes);
  io("optimizer_bytes", value.cost.optimizer_bytes);
  io("times", value.times);
  io("bytes", value.bytes);
}

template <typename Io>
void fields(Io& io, LayerProfile& value) {
  io("fingerprint", value.fingerprint);
  io("micro_batch", value.micro_batch);
  io("contenders", value.contenders);
  io("layers", value.layers);
  io("stage_links", value.stage_links);
  io("all_reduces", value.all_reduces);
  io("update", value.update);
  io("update_together", value.update_together);
  io("load", value.load);
  io("load_of", value.load_of);
  io.if_there("server", value.server);
  io("step", value.step);
  io("stage_memory", value.stage_memory);
  io("device_memory", value.device_memory);
}

namespace {

constexpr auto kKind = "sluice layer profile";
constexpr double kMostScale = 1e6;

bool is_way_of_timing(const std::string& word) {
  return word == kTimedByClock || word == kTimedByEvents || word == kTimedByCupti;
}

void check_bytes(const JsonReader& reader, const MeasuredLayer& layer, std::size_t i) {
  for (std::size_t b = 0; b < layer.bytes.size(); ++b) {
    const std::int64_t before = b == 0 ? 0 : layer.bytes[b - 1].samples;
    if (layer.bytes[b].samples <= before)
      reader.refuse(concat("layers[", i, "].bytes[", b, "].samples"), concat("is no more than ", before));
  }
}

void check_times(const JsonReader& reader, const MeasuredLayer& layer, std::size_t i) {
  for (std::size_t t = 0; t < layer.times.size(); ++t) {
    const LayerTimes& times = layer.times[t];
    const auto field = [&](const char* name) { return concat("layers[", i, "].times[", t, "].", name); };
    if (times.samples == 0) reader.refuse(field("samples"), "is 0");
    if (t > 0 && times.samples <= layer.times[t - 1].samples)
      reader.refuse(field("samples"), "is no more than the one before");
    if (!is_way_of_timing(times.timed_by))
      reader.refuse(field("timed_by"), concat("is \"", times.timed_by, "\", but should be clock, events or cupti"));
  }
}

void check_links(const JsonReader& reader, const LayerProfile& profile) {
  const auto check_link = [&](const std::string& field, const LinkCost& link) {
    if (link.bytes_per_s && *link.bytes_per_s < 1)
      reader.refuse(field + ".bytes_per_s", concat("is ", *link.bytes_per_s, ", but should be at least 1"));
  };
  for (std::size_t i = 0; i < profile.stage_links.size(); ++i)
    check_link(concat("stage_links[", i, "]"), profile.stage_links[i].cost);
  for (std::size_t i = 0; i < profile.all_reduces.size(); ++i)
    check_link(concat("all_reduces[", i, "]"), profile.all_reduces[i].cost);
  if (!profile.server) return;
  check_link("server.push", profile.server->cost.push);
  check_link("server.pull", profile.server->cost.pull);
}

void check_values(const JsonReader& reader, const LayerProfile& profile) {
  if (profile.layers.empty()) reader.refuse("layers", "is empty");
  if (profile.micro_batch == 0) reader.refuse("micro_batch", "is 0");
  if (profile.contenders == 0) reader.refuse("contenders", "is 0");
  if (profile.fingerprint.cores == 0) reader.refuse("fingerprint.cores", "is 0");
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    if (profile.layers[i].cost.slowdown < 1) reader.refuse(concat("layers[", i, "].slowdown"), "is less than 1");
    check_times(reader, profile.layers[i], i);
    check_bytes(reader, profile.layers[i], i);
  }
  if (profile.compute_scale() > kMostScale)
    reader.refuse("step.compute_s", concat("is more than ", kMostScale, " times step.predicted_compute_s"));
  check_links(reader, profile);
}

// Takes the measured points but keeps the file's lines.
void take_points(MeasuredLayer& layer) {
  const LayerCost lines = layer.cost;
  if (layer.times.empty()) return;
  set_costs(layer);
  const auto keep = [](SizedCost& cost, const SizedCost& line) {
    cost.a_s = line.a_s, cost.b_s = line.b_s, cost.error = line.error;
  };
  keep(layer.cost.forward, lines.forward);
  keep(layer.cost.input_gradient, lines.input_gradient);
  keep(layer.cost.weight_gradient, lines.weight_gradient);
  keep(layer.cost.backward, lines.backward);
}

nlohmann::ordered_json parse(std::string_view text, const std::string& file) {
  try {
    return nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::json::exception&) {
    throw ConfigError(file, " is not JSON; give the file that `sluice profile CONFIG --out FILE` wrote");
  }
}

bool is_of_this_kind(const nlohmann::ordered_json& json) {
  const auto kind = json.find("kind");
  return kind != json.end() && *kind == kKind;
}

}  // namespace

void set_costs(MeasuredLayer& layer) {
  const auto cost = [&](double LayerTimes::*part) {
    std::vector<TimeAtSize> points;
    for (const LayerTimes& at : layer.times) points.push_back({static_cast<double>(at.samples), at.*part});
    return sized_cost(points);
  };
  layer.cost.forward = cost(&LayerTimes::forward_s);
  layer.cost.input_gradient = cost(&LayerTimes::input_gradient_s);
  layer.cost.weight_gradient = cost(&LayerTimes::weight_gradient_s);
  layer.cost.backward = cost(&LayerTimes::backward_s);
}

std::string to_json_text(const LayerProfile& profile) {
  LayerProfile copy = profile;
  nlohmann::ordered_json json{{"kind", kKind}, {"schema_version", kProfileVersion}};
  json["fingerprint_hash"] = short_hash(profile.fingerprint);
  json.update(JsonWriter::object_of(copy));
  return json.dump(2) + "\n";
}

LayerProfile parse_profile(std::string_view text, const std::string& file) {
  const nlohmann::ordered_json json = parse(text, file);
  JsonReader reader(json, file, "");
  constexpr auto kGive = "; give the file that `sluice profile CONFIG --out FILE` wrote";
  if (!is_of_this_kind(json)) throw ConfigError(file, " is not a layer profile", kGive);
  int version = 0;
  reader("schema_version", version);
  if (version != kProfileVersion)
    reader.refuse("schema_version", concat("is ", version, ", but this version of sluice reads ", kProfileVersion));
  LayerProfile profile;
  fields(reader, profile);
  check_values(reader, profile);
  for (MeasuredLayer& layer : profile.layers) take_points(layer);
  std::optional<std::string> hash;  // a file written by hand may have none
  reader.if_there("fingerprint_hash", hash);
  if (hash && *hash != short_hash(profile.fingerprint))
    reader.refuse("fingerprint_hash", concat("is ", *hash, ", which is not that of the fingerprint"));
  return profile;
}

LayerProfile read_profile(const std::filesystem::path& file) {
  std::error_code ignored;
  std::ifstream stream(file, std::ios::binary);
  if (!stream || !std::filesystem::is_regular_file(file, ignored)) {
    throw ConfigError("cannot read the profile ", file.string(),
                      "; give the file that `sluice profile CONFIG --out FILE` wrote");
  }
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  return parse_profile(text, file.string());
}

bool is_profile(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return false;
  std::ifstream stream(file, std::ios::binary);
  const auto json = nlohmann::ordered_json::parse(stream, /*cb=*/nullptr, /*allow_exceptions=*/false);
  return json.is_object() && is_of_this_kind(json);
}

}  // namespace sluice::profiler
