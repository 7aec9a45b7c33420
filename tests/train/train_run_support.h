// train_run_support: short runs in this process: a small configuration, training as `sluice train` does it, its
// records.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/files.h"
#include "train/run/train_run.h"

namespace sluice::train::test {

// Three steps of 8 of 20 images (the last of an epoch are 4); a checkpoint after each.
inline config::Config small_run() {
  config::Config config;
  config.device.list.choice = "cpu";
  config.device.threads = 1;
  config.model.name = "mlp";
  config.model.size = "nano";
  config.model.image_size = 8;
  config.model.channels = 1;
  config.data.name = "shapes";
  config.data.samples = 20;
  config.data.workers = 0;
  config.train.steps = 3;
  config.train.global_batch = 8;
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 9;
  config.log.every = 1;
  config.log.tensorboard = false;
  return config;
}

inline TrainRunOptions into(const std::filesystem::path& run_dir, const std::string& resume = {}) {
  return {.run_dir = run_dir, .config_file = "test", .resume = resume, .launch = {.world = {}, .version = "test"}};
}

// The lines of metrics.jsonl of one event.
inline std::vector<nlohmann::json> events_of(const std::filesystem::path& run_dir, const std::string& event) {
  std::vector<nlohmann::json> events;
  for (const std::string& line : sluice::test::lines_of(run_dir / "metrics.jsonl")) {
    nlohmann::json parsed = nlohmann::json::parse(line);
    if (parsed.at("event") == event) events.push_back(std::move(parsed));
  }
  return events;
}

}  // namespace sluice::train::test
