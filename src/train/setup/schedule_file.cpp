#include "train/setup/schedule_file.h"

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/schedule_file.h"
#include "storage/checkpoint.h"
#include "train/setup/run_state.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

std::string setting(const config::Config& config) {
  return concat("pipeline.order = \"", printable(config.pipeline.order), "\"");
}

// Accepts a key that is at its default or "auto", or equal to the schedule file's value.
void settle(const config::Config& config, const char* key, std::optional<int> configured, int by_default, int found,
            std::string_view noun) {
  if (!configured || *configured == by_default || *configured == found) return;
  throw ConfigError(setting(config), " has ", counted(found, noun), ", but ", key, " = ", *configured, "; remove ", key,
                    ", or use another schedule file");
}

std::string change_of_file(const config::Config& config, const std::string& kept) {
  try {
    return read_configured_schedule(config) == kept ? std::string{} : "the file has another schedule now";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

}  // namespace

std::string read_configured_schedule(const config::Config& config) {
  const std::string& file = config.pipeline.order;
  if (file.empty()) return {};
  try {
    return pipeline::draw(
        pipeline::prove_training_schedule(pipeline::read_schedule_file(fs::path(file)), printable(file)));
  } catch (const ConfigError& error) {
    throw ConfigError("pipeline.order: ", error.what());
  }
}

config::Config settled_by_schedule(const std::string& schedule_text, config::Config config) {
  const pipeline::Schedule schedule = pipeline::prove_training_schedule(schedule_text, config.pipeline.order);
  const config::PipelineConfig defaults;
  const int devices = static_cast<int>(schedule.devices.size());
  config::PipelineConfig& pipeline = config.pipeline;
  settle(config, "pipeline.stages", pipeline.stages, defaults.stages, devices, "device");
  settle(config, "pipeline.virtual", pipeline.virtual_stages, 0, schedule.stages / devices, "stage");
  settle(config, "pipeline.chunks", pipeline.chunks, defaults.chunks.value_or(0), schedule.micro_batches,
         "micro-batch");
  pipeline.stages = devices;
  pipeline.virtual_stages = schedule.stages / devices;
  pipeline.chunks = schedule.micro_batches;
  try {
    config::validate(config);
  } catch (const ConfigError& error) {
    throw ConfigError(setting(config), " sets pipeline.stages = ", devices,
                      " and pipeline.chunks = ", schedule.micro_batches, ": ", error.what());
  }
  return config;
}

std::optional<std::string> kept_schedule(const config::Config& config, const nlohmann::json& state,
                                         const std::string& source) {
  const nlohmann::json::json_pointer order("/plan/order"), text("/config");
  if (config.pipeline.order.empty() || !state.contains(order) || !state.contains(text)) return std::nullopt;
  const config::Config saved = config::parse(state.at(text).get<std::string>(), concat(source, "/state.json config"));
  if (saved.pipeline.order != config.pipeline.order) return std::nullopt;
  std::string kept = state.at(order).get<std::string>();
  if (const std::string change = change_of_file(config, kept); !change.empty()) {
    log_warning(
        concat(setting(config), " has changed since ", source, " was written (", change,
               "); the saved schedule is used. To use the new one, set pipeline.order to a file with another name."));
  }
  return kept;
}

std::optional<std::string> kept_schedule(const config::Config& config, const fs::path& from) {
  if (config.pipeline.order.empty() || from.empty()) return std::nullopt;
  const auto checkpoint = find_checkpoint(from);
  if (!checkpoint) return std::nullopt;
  return kept_schedule(config, storage::read_state(*checkpoint), checkpoint->string());
}

}  // namespace sluice::train
