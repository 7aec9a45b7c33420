#include "train/setup/constants.h"

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "measure/fingerprint_of.h"
#include "models/foreign_weights.h"
#include "models/public_constants.h"
#include "storage/weights_files.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kMetadata = "sluice";
constexpr const char* kExact = "exact";
constexpr const char* kTanh = "tanh";

bool are_of_sluice(const storage::AboutWeights& about) {
  return about.metadata.contains(kMetadata) || about.state.contains("state_format");
}

std::string numbers_text(const std::vector<double>& numbers) {
  std::vector<std::string> words;
  for (const double number : numbers) words.push_back(concat(number));
  return join(words, " ");
}

std::string in_words(const Constants& constants) {
  const models::ModelConstants& model = constants.model;
  std::vector<std::string> words;
  if (model.norm_epsilon > 0) {
    words.push_back(concat("layer-norm epsilon ", model.norm_epsilon,
                           model.last_norm_epsilon == model.norm_epsilon
                               ? std::string()
                               : concat(" (of the last one ", model.last_norm_epsilon, ")")));
    words.push_back(concat("GELU ", model.gelu == nn::GeluForm::kTanh ? "by tanh" : "exact"));
  }
  if (!constants.mean.empty()) {
    words.push_back(concat("pixels normalised by mean ", numbers_text(constants.mean), " and deviation ",
                           numbers_text(constants.stddev)));
  }
  return join(words, ", ");
}

Constants constants_of_sluice(const storage::AboutWeights& about, const models::ModelOptions& model,
                              const std::string& source) {
  const auto found = about.metadata.find(kMetadata);
  if (found == about.metadata.end()) return saved_constants(about.state, model, source);
  return Constants::from_json(json::parse(found->second, nullptr, /*allow_exceptions=*/false), source);
}

// Ignores a file beside the weights if it is from another library than the one that the tensor names belong to.
void drop_files_of_others(storage::AboutWeights& about, models::NamesOf names, const std::string& model) {
  const models::FilesBeside counts = models::files_of_names(names, model, about.config);
  const auto drop = [&](const char* file, json& content, bool is_of_names) {
    if (content.is_null() || is_of_names) return;
    log_warning((about.folder / file).string(),
                " is ignored: its library is not the one whose tensor names the weights have. If the file belongs to "
                "these weights, use the weights file that the same library wrote.");
    content = json();
  };
  drop("config.json", about.config, counts.config);
  drop("preprocessor_config.json", about.preprocessor, counts.preprocessor);
}

// config: of the folder, null in checkpoints of earlier versions.
void check_text_model(const json& config, const fs::path& folder, const models::ModelOptions& model) {
  if (!models::is_text(model) || config.is_null()) return;
  static_cast<void>(models::public_constants(models::NamesOf::kOurs, model, config, (folder / "config.json").string()));
}

Constants public_constants(storage::AboutWeights about, const fs::path& weights, const config::Config& config,
                           const models::ModelOptions& model) {
  const std::string config_file = (about.folder / "config.json").string();
  const models::NamesOf names = models::to_our_names(model, storage::read_weights(weights), weights.string()).names;
  drop_files_of_others(about, names, model.name);
  const models::PublicPixels pixels = models::public_pixels(
      about.config, about.preprocessor,
      about.preprocessor.is_null() ? config_file : (about.folder / "preprocessor_config.json").string());
  const bool has_images = models::kind_of(model) == SampleKind::kImage;
  if (has_images && !pixels.interpolation.empty() && pixels.interpolation != config.data.interpolation) {
    log_warning("the weights in ", about.folder.string(), " expect images resized by \"", pixels.interpolation,
                "\", but data.interpolation is \"", config.data.interpolation,
                "\"; set it to the same value to get the results of their library");
  }
  Constants constants{.model = models::public_constants(names, model, about.config, config_file)};
  if (!has_images) return constants;
  constants.mean = pixels.mean;
  constants.stddev = pixels.stddev;
  if (!constants.mean.empty() && std::ssize(constants.mean) != model.channels) {
    throw CheckpointError(about.folder.string(), ": pixels are normalised in ", constants.mean.size(),
                          " channels, but the model has ", model.channels,
                          "; set model.channels, or use weights for that number of channels");
  }
  return constants;
}

// A tokenizer saved again may have other bytes, so this is no error.
void warn_of_other_tokenizer(const fs::path& weights, const fs::path& tokenizer) {
  const fs::path own = storage::folder_of_weights(weights) /
                       (tokenizer.extension() == ".json" ? "tokenizer.json" : tokenizer.filename());
  std::error_code ignored;
  if (tokenizer.empty() || !fs::is_regular_file(own, ignored) || fs::equivalent(own, tokenizer, ignored)) return;
  if (storage::digest_file(own).xxh3_128 == storage::digest_file(tokenizer).xxh3_128) return;
  log_warning("data.tokenizer = ", tokenizer.string(), " is another file than ", own.string(),
              "; if this is another tokenizer, its tokens mean something else to the weights");
}

}  // namespace

json Constants::to_json() const {
  json fields{{"norm_epsilon", model.norm_epsilon},
              {"last_norm_epsilon", model.last_norm_epsilon},
              {"gelu", model.gelu == nn::GeluForm::kTanh ? kTanh : kExact},
              {"mean", mean},
              {"stddev", stddev}};
  if (lora_alpha > 0) fields["lora_alpha"] = lora_alpha;
  if (!model_file.empty()) fields["model_file"] = model_file;
  return fields;
}

Constants Constants::from_json(const json& json, const std::string& source) {
  try {
    return {.model = {.norm_epsilon = json.at("norm_epsilon"),
                      .last_norm_epsilon = json.at("last_norm_epsilon"),
                      .gelu = json.at("gelu") == kTanh ? nn::GeluForm::kTanh : nn::GeluForm::kExact},
            .mean = json.at("mean").get<std::vector<double>>(),
            .stddev = json.at("stddev").get<std::vector<double>>(),
            .lora_alpha = json.value("lora_alpha", 0.0),
            .model_file = json.value("model_file", std::string())};
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(
        concat(source, ": cannot read the model's constants (", error.what(), "); use another checkpoint"));
  }
}

void check_model_file(const Constants& saved, const models::ModelOptions& model, const std::string& source) {
  const std::string& file = model.file;
  if (saved.model_file.empty() || file.empty() || measure::digest_of_model(file) == saved.model_file) return;
  throw CheckpointError(source, " was written with another content of model.file than ", file,
                        " has; name the file that the run began with, or start a new run with model.weights");
}

Constants constants_of_model(const models::ModelOptions& model) { return {.model = models::own_constants(model)}; }

Constants saved_constants(const json& state, const models::ModelOptions& model, const std::string& source) {
  check_text_model(storage::read_object(fs::path(source) / "config.json"), source, model);
  if (state.contains("constants")) return Constants::from_json(state.at("constants"), source);
  return {.model = models::constants_by_names(models::NamesOf::kOurs, model)};
}

Constants constants_of_weights(const fs::path& weights, const config::Config& config,
                               const models::ModelOptions& model) {
  const storage::AboutWeights about = storage::read_about_weights(weights);
  check_text_model(about.config, about.folder, model);
  Constants constants = are_of_sluice(about) ? constants_of_sluice(about, model, weights.string())
                                             : public_constants(about, weights, config, model);
  if (const std::string words = in_words(constants); !words.empty())
    log_info("constants of ", weights.string(), ": ", words);
  return constants;
}

void put_constants(const Constants& constants, storage::CheckpointContents& contents) {
  contents.state["constants"] = constants.to_json();
  contents.metadata[kMetadata] = constants.to_json().dump();
}

void check_tokens_of_weights(const fs::path& weights, const config::Config& config, const models::ModelOptions& model,
                             const data::DatasetInfo& data) {
  warn_of_other_tokenizer(weights, config.data.tokenizer);
  constexpr int kBytes = 256;
  if (!data.has_bytes || models::kind_of(model) != SampleKind::kTokens ||
      models::token_sizes(model).vocabulary <= kBytes)
    return;
  if (are_of_sluice(storage::read_about_weights(weights))) return;
  throw ConfigError("the weights in ", weights.string(), " use a vocabulary of ", models::token_sizes(model).vocabulary,
                    " tokens, but data.name = \"", data.name,
                    "\" provides bytes; set data.tokenizer to the model's tokenizer");
}

}  // namespace sluice::train
