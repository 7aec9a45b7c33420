#include "config/config.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <system_error>

#include "config/assignment.h"
#include "config/changes.h"
#include "config/reader.h"
#include "config/rules.h"
#include "config/schema.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"

namespace sluice::config {
namespace {

constexpr std::uintmax_t kLargestFile = 1U << 20U;  // bytes

std::string in_quotes(std::string_view word) { return concat("'", one_line(word), "'"); }

std::string_view leaf_of(std::string_view name) { return name.substr(name.rfind('.') + 1); }

std::vector<std::string> words_of(std::string_view leaf) {
  std::vector<std::string> words{""};
  for (const char c : leaf) {
    if (c == '_') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  std::ranges::sort(words);
  return words;
}

// Sluice's keys by the names of other trainers; empty if the name is unknown.
std::string_view key_of_others(std::string_view leaf) {
  using Pair = std::pair<std::string_view, std::string_view>;
  constexpr std::array kKeys{Pair{"learning_rate", "train.lr"},
                             Pair{"base_lr", "train.lr"},
                             Pair{"min_lr", "train.lr_min"},
                             Pair{"lr_scheduler", "train.lr_schedule"},
                             Pair{"scheduler", "train.lr_schedule"},
                             Pair{"wd", "train.weight_decay"},
                             Pair{"grad_clip", "train.clip_norm"},
                             Pair{"max_grad_norm", "train.clip_norm"},
                             Pair{"batch_size", "train.global_batch"},
                             Pair{"num_epochs", "train.epochs"},
                             Pair{"num_train_epochs", "train.epochs"},
                             Pair{"max_epochs", "train.epochs"},
                             Pair{"max_steps", "train.steps"},
                             Pair{"gradient_accumulation_steps", "pipeline.chunks"},
                             Pair{"num_microbatches", "pipeline.chunks"},
                             Pair{"num_stages", "pipeline.stages"},
                             Pair{"num_workers", "data.workers"},
                             Pair{"num_classes", "model.classes"},
                             Pair{"img_size", "model.image_size"},
                             Pair{"dataset", "data.name"},
                             Pair{"data_dir", "data.path"},
                             Pair{"pretrained", "model.weights"},
                             Pair{"checkpoint_path", "model.weights"}};
  const auto found = std::ranges::find(kKeys, leaf, &Pair::first);
  return found != kKeys.end() ? found->second : std::string_view();
}

// Returns "; did you mean 'train.steps'?". Candidates in order: the same leaf in another table, a name used by other
// trainers, a key of the same words, the nearest name.
std::string suggestion(std::string_view word, std::span<const std::string> known) {
  const std::string_view leaf = leaf_of(word), of_others = key_of_others(leaf);
  const auto is_meant = [&](const std::string& name) { return leaf_of(name) == leaf || name == of_others; };
  auto meant = std::ranges::find_if(known, is_meant);
  if (meant == known.end()) {
    meant = std::ranges::find_if(
        known, [words = words_of(leaf)](const std::string& name) { return words_of(leaf_of(name)) == words; });
  }
  if (meant != known.end()) return concat("; did you mean ", in_quotes(*meant), "?");
  return did_you_mean(word, known, std::max<std::size_t>(2, leaf_of(word).size() / 3));
}

[[noreturn]] void reject_table(std::string_view where, std::string_view table) {
  const auto tables = table_names();
  const std::string near = suggestion(table, tables);
  throw ConfigError(where, ": unknown table ", in_quotes(table),
                    near.empty() ? concat("; the tables are ", join(tables, ", ")) : near);
}

[[noreturn]] void reject_key(std::string_view where, std::string_view name) {
  std::vector<std::string> names;
  std::vector<std::string> siblings;
  const std::string_view table = name.substr(0, name.find('.'));
  for (const auto& key : schema()) {
    names.emplace_back(key.name);
    if (key.table() == table) siblings.emplace_back(key.leaf());
  }
  std::string hint = suggestion(name, names);
  if (hint.empty() && !siblings.empty()) hint = concat("; the keys of [", table, "] are ", join(siblings, ", "));
  if (hint.empty()) hint = concat("; a key belongs to one of the tables ", join(table_names(), ", "));
  throw ConfigError(where, ": unknown key ", in_quotes(name), hint);
}

bool is_table(std::string_view name) {
  return std::ranges::any_of(schema(), [&](const Key& key) { return key.table() == name; });
}

class Builder {
 public:
  explicit Builder(std::string_view name) : sources_{std::string(name), {}} {}

  void add(const Entry& entry) {
    const std::string where = concat(sources_.name, ":", entry.line);
    if (entry.leaf.empty() && !entry.table.empty()) {
      if (!is_table(entry.table)) reject_table(where, entry.table);
      return;
    }
    if (entry.table.empty() && is_table(entry.leaf)) {
      throw ConfigError(where, ": ", in_quotes(entry.leaf), " is a table; write [", entry.leaf,
                        "] and its keys below; found ", type_of(entry.value));
    }
    assign(where, entry.table.empty() ? entry.leaf : concat(entry.table, ".", entry.leaf), entry.value,
           /*is_of_file=*/true);
  }

  void add_set(const std::string& set) {
    const std::string where = concat("--set ", one_line(set));
    const auto [name, text] = split_assignment(set, where);
    const Key* key = find_key(name);
    if (key == nullptr && is_table(name))
      throw ConfigError(where, ": ", in_quotes(name), " is a table; set one of its keys");
    if (key == nullptr) reject_key(where, name);
    assign(where, name, assigned_value(*key, text, where), /*is_of_file=*/false);
  }

  [[nodiscard]] const Config& unchecked() const { return config_; }
  Config finish() && {
    drop_settings_that_sets_disable();
    check_rules(config_, sources_);
    (void)changes_of(config_, sources_);
    return std::move(config_);
  }

 private:
  void assign(const std::string& where, const std::string& name, const Value& value, bool is_of_file) {
    const Key* key = find_key(name);
    if (key == nullptr) reject_key(where, name);
    try {
      check_value(*key, value);
    } catch (const ConfigError& error) {
      throw ConfigError(where, ": ", error.what());
    }
    key->field.set(config_, value);
    sources_.of_key[name] = where;
    if (!is_of_file) set_.insert(name);
  }

  // Lets "--set freeze.policy=none" also override freeze.schedule from the file.
  void drop_settings_that_sets_disable() {
    for (const auto& [name, of, why] : unread_keys(config_)) {
      if (!set_.contains(of) || set_.contains(name)) continue;
      const Key& key = *find_key(name);
      log_info(sources_.where({name}), ": ", name, " = ", to_text(key.field.get(config_)), " is ignored because of ",
               sources_.where({of}));
      key.field.set(config_, key.field.get(Config{}));
    }
  }

  Config config_;
  Sources sources_;
  std::set<std::string, std::less<>> set_;
};

}  // namespace

std::string read_config_text(const std::filesystem::path& path) {
  std::error_code failed;
  const auto status = std::filesystem::status(path, failed);
  if (failed == std::errc::permission_denied)
    throw ConfigError(path.string(), ": cannot be read; check its permissions and those of its folders");
  if (!std::filesystem::exists(status)) {
    throw ConfigError(
        concat(path.string(), ": no such file; give the path of a configuration, such as one in configs/"));
  }
  if (std::filesystem::is_directory(status)) {
    throw ConfigError(path.string(), ": is a folder; give the path of a configuration file in it");
  }
  std::ifstream in(path, std::ios::binary);
  std::string text;
  if (in) {
    text.resize(kLargestFile + 1);
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(in.gcount()));
  }
  if (in.bad() || !(in || in.eof())) throw ConfigError(path.string(), ": cannot be read; check its permissions");
  if (text.size() > kLargestFile) {
    throw ConfigError(path.string(), ": larger than ", human_bytes(kLargestFile),
                      ", so it is not a configuration file");
  }
  return text;
}

Config parse(std::string_view text, std::string_view name, std::span<const std::string> sets) {
  Builder builder(name);
  for (const auto& entry : read_toml(text, name)) builder.add(entry);
  for (const auto& set : sets) builder.add_set(set);
  return std::move(builder).finish();
}

int nesterov_delay(const Config& config) { return config.ps.policy == "diloco" ? 0 : config.ps.nesterov_delay; }

bool DataConfig::has_random_views() const {
  return crop_area > 0 || crop_padding > 0 || flip || brightness > 0 || contrast > 0 || saturation > 0 || hue > 0 ||
         rand_augment > 0 || erasing > 0;
}

std::int64_t step_batch(const Config& config) {
  if (!config.replicas.has_server()) return config.train.global_batch;
  return config.ps.worker_batch > 0 ? config.ps.worker_batch : config.train.global_batch / config.ps.workers;
}

Config load(const std::filesystem::path& path, std::span<const std::string> sets) {
  return parse(read_config_text(path), path.string(), sets);
}

std::string text_with(std::string_view text, std::string_view name, const Config& wanted) {
  Builder present(name);
  for (const auto& entry : read_toml(text, name)) present.add(entry);
  std::string changed(text);
  for (const auto& key : schema()) {
    const std::string value = to_text(key.field.get(wanted));
    if (value == to_text(key.field.get(present.unchecked()))) continue;
    changed = with_value(changed, name, key.table(), key.leaf(), value);
  }
  return changed;
}

void validate(const Config& config) {
  for (const auto& key : schema()) check_value(key, key.field.get(config));
  check_rules(config, {"configuration", {}});
  (void)changes_of(config);
}

}  // namespace sluice::config
