#include "train/study/saved_config.h"

#include <system_error>

#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "train/setup/run_state.h"

namespace sluice::train {

namespace fs = std::filesystem;

fs::path checkpoint_in(const std::string& option, const fs::path& dir) {
  const auto found = find_checkpoint((dir / "").parent_path());
  if (!found) {
    throw CheckpointError(option, " ", dir.string(),
                          ": no checkpoint found; name a run directory or one of its checkpoints/step-N");
  }
  return *found;
}

config::Config config_of_checkpoint(const fs::path& checkpoint, const nlohmann::json& state,
                                    const std::vector<std::string>& sets) {
  if (const auto text = state.find("config"); text != state.end() && text->is_string())
    return config::parse(text->get<std::string>(), concat((checkpoint / "state.json").string(), " config"), sets);
  const fs::path of_run = fs::absolute(checkpoint).parent_path().parent_path() / "config.toml";
  if (std::error_code ignored; fs::exists(of_run, ignored)) return config::load(of_run, sets);
  throw ConfigError(checkpoint.string(), " has no configuration; pass one: sluice eval CONFIG --checkpoint ",
                    checkpoint.string());
}

}  // namespace sluice::train
