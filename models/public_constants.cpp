#include "models/public_constants.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "models/families.h"

namespace sluice::models {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& source, const std::string& key, const json& value,
                         const std::string& ours) {
  throw CheckpointError(source, " has ", key, " = ", value.dump(), ", but ", ours,
                        "; the logits would differ from the original. Choose the model of these weights, or "
                        "other weights.");
}

[[noreturn]] void refuse_value(const std::string& source, const std::string& key, const json& value,
                               const std::string& expected) {
  throw CheckpointError(
      concat(source, ": ", key, " = ", value.dump(), " is not valid: expected ", expected, "; correct the file"));
}

json value_of(const json& table, const std::string& key) {
  const auto found = table.is_object() ? table.find(key) : table.end();
  return table.is_object() && found != table.end() ? *found : json();
}

void require(const std::string& source, const json& table, const std::string& key, const json& needed,
             const std::string& ours) {
  const json value = value_of(table, key);
  if (!value.is_null() && value != needed) refuse(source, key, value, ours);
}

void read_epsilon(const std::string& source, const json& table, const std::string& key, double& epsilon) {
  const json value = value_of(table, key);
  if (value.is_null()) return;
  if (!value.is_number() || !(value.get<double>() > 0)) refuse_value(source, key, value, "a number above 0");
  epsilon = value.get<double>();
}

void read_gelu(const std::string& source, const json& table, const std::string& key, nn::GeluForm& form) {
  constexpr std::array kExact{"gelu", "gelu_python"};
  constexpr std::array kTanh{"gelu_new", "gelu_pytorch_tanh", "gelu_tanh", "gelu_fast", "gelu_accurate"};
  const json value = value_of(table, key);
  if (value.is_null()) return;
  const std::string word = value.is_string() ? value.get<std::string>() : std::string();
  if (std::ranges::find(kExact, word) != kExact.end()) {
    form = nn::GeluForm::kExact;
  } else if (std::ranges::find(kTanh, word) != kTanh.end()) {
    form = nn::GeluForm::kTanh;
  } else {
    refuse(source, key, value, "only GELU is known here, exact or by tanh");
  }
}

void check_heads(const std::string& source, const json& config, const std::string& key, const ModelOptions& model,
                 std::int64_t heads) {
  require(source, config, key, heads,
          concat("model.name = \"", model.name, "\" of model.size = \"", model.size, "\" has ", heads));
}

// Without model.config, epsilon and GELU come from the file beside the weights; with it, they must be equal.
void read_text(const json& config, const ModelOptions& model, const std::string& source, ModelConstants& constants) {
  TextConfig theirs, ours = text_config(model);
  try {
    theirs = parse_text_config(config, source);
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
  if (!model.text) {
    ours.epsilon = theirs.epsilon;
    ours.gelu = theirs.gelu;
  }
  if (const std::string difference = arithmetic_difference(theirs, ours); !difference.empty()) {
    throw CheckpointError(source, " has ", difference, "; set model.config to the config.json of these weights");
  }
  constants = {.norm_epsilon = theirs.epsilon, .last_norm_epsilon = theirs.epsilon, .gelu = theirs.gelu};
}

void read_transformers(const json& config, const ModelOptions& model, const std::string& source,
                       ModelConstants& constants) {
  if (model.name == "vit") {
    check_heads(source, config, "num_attention_heads", model, vit_heads(model.size));
    read_epsilon(source, config, "layer_norm_eps", constants.norm_epsilon);
    constants.last_norm_epsilon = constants.norm_epsilon;
    read_gelu(source, config, "hidden_act", constants.gelu);
  } else if (model.name == "convnext") {  // the file can set only the last norm's epsilon
    read_epsilon(source, config, "layer_norm_eps", constants.last_norm_epsilon);
    read_gelu(source, config, "hidden_act", constants.gelu);
  } else if (is_text(model)) {
    read_text(config, model, source, constants);
  } else if (model.name.starts_with("resnet")) {
    require(source, config, "hidden_act", "relu", "resnets here have ReLU");
    require(source, config, "downsample_in_first_stage", false, "the first stage of resnets here keeps the size");
    require(source, config, "downsample_in_bottleneck", false,
            "the stride of resnets here is in the 3x3 convolution (\"v1.5\")");
  }
}

// Rejects timm's ResNets that compute differently. Some of them, such as resnetaa50, have the same tensors as ours.
void check_resnet_of_timm(const json& config, const json& arguments, const ModelOptions& model,
                          const std::string& source) {
  const std::string name = value_of(config, "architecture").get<std::string>();
  constexpr std::array kOfOtherTrainings{"", "tv_", "ssl_", "swsl_"};  // prefixes in older versions of timm
  const auto is_ours = [&](const char* prefix) { return name == prefix + model.name; };
  if (std::ranges::none_of(kOfOtherTrainings, is_ours) && name != concat("gluon_", model.name, "_v1b"))
    refuse(source, "architecture", name, concat("model.name = \"", model.name, "\""));
  require(source, arguments, "act_layer", "relu", "resnets here have ReLU");
  require(source, arguments, "aa_layer", json(), "resnets here have no anti-aliasing");
  require(source, arguments, "output_stride", 32, "resnets here have 32");
}

void read_timm(const json& config, const ModelOptions& model, const std::string& source, ModelConstants& constants) {
  const json name = value_of(config, "architecture"), arguments = value_of(config, "model_args");
  if (name.get<std::string>().find("quickgelu") != std::string::npos)
    refuse(source, "architecture", name, "only GELU is known here, exact or by tanh");
  if (model.name.starts_with("resnet")) return check_resnet_of_timm(config, arguments, model, source);
  if (own_constants(model).norm_epsilon == 0) return require(source, arguments, "act_layer", "relu", "it has ReLU");
  read_epsilon(source, arguments, "norm_eps", constants.norm_epsilon);
  if (!value_of(arguments, "norm_eps").is_null()) constants.last_norm_epsilon = constants.norm_epsilon;
  read_gelu(source, arguments, "act_layer", constants.gelu);
}

bool are_transformers(NamesOf names, const std::string& model) {
  constexpr std::array kOurs{"vit", "gpt2", "bert", "llama"};  // their names are Hugging Face's
  return names == NamesOf::kHuggingFace || (names == NamesOf::kOurs && std::ranges::find(kOurs, model) != kOurs.end());
}
bool are_timms(NamesOf names, const std::string& model) {
  return names == NamesOf::kTimm || (names == NamesOf::kOurs && model.starts_with("resnet"));
}

bool is_of_transformers(const json& config) { return value_of(config, "model_type").is_string(); }

std::vector<double> numbers_in(const json& list, const std::string& key, const std::string& source) {
  const bool are_numbers =
      list.is_array() && std::ranges::all_of(list, [](const json& item) { return item.is_number(); });
  if (!list.is_null() && (!are_numbers || list.empty())) refuse_value(source, key, list, "a list of numbers");
  return list.is_null() ? std::vector<double>() : list.get<std::vector<double>>();
}

}  // namespace

ModelConstants constants_by_names(NamesOf names, const ModelOptions& model) {
  constexpr double kOfTransformers = 1e-12;
  ModelConstants constants = own_constants(model);
  if (!are_transformers(names, model.name)) return constants;
  if (model.name == "vit") constants.norm_epsilon = constants.last_norm_epsilon = kOfTransformers;
  if (model.name == "convnext") constants.last_norm_epsilon = kOfTransformers;
  return constants;
}

ModelConstants public_constants(NamesOf names, const ModelOptions& model, const json& config,
                                const std::string& source) {
  ModelConstants constants = constants_by_names(names, model);
  if (is_of_transformers(config)) {
    if (are_transformers(names, model.name)) read_transformers(config, model, source, constants);
  } else if (value_of(config, "architecture").is_string() && are_timms(names, model.name)) {
    read_timm(config, model, source, constants);
  }
  return constants;
}

FilesBeside files_of_names(NamesOf names, const std::string& model, const json& config) {
  const bool counts_transformers = are_transformers(names, model);
  return {.config = is_of_transformers(config) ? counts_transformers : are_timms(names, model),
          .preprocessor = counts_transformers};
}

PublicPixels public_pixels(const json& config, const json& preprocessor, const std::string& source) {
  PublicPixels pixels;
  if (const json timm = value_of(config, "pretrained_cfg"); timm.is_object()) {
    pixels.mean = numbers_in(value_of(timm, "mean"), "mean", source);
    pixels.stddev = numbers_in(value_of(timm, "std"), "std", source);
    if (const json word = value_of(timm, "interpolation"); word.is_string())
      pixels.interpolation = word.get<std::string>();
  }
  if (preprocessor.is_object()) {
    pixels.mean = numbers_in(value_of(preprocessor, "image_mean"), "image_mean", source);
    pixels.stddev = numbers_in(value_of(preprocessor, "image_std"), "image_std", source);
    if (value_of(preprocessor, "do_normalize") == false) {
      pixels.mean.assign(std::max<std::size_t>(pixels.mean.size(), 3), 0);
      pixels.stddev.assign(pixels.mean.size(), 1);
    }
    constexpr std::array kOfPillow{"nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"};
    if (const json number = value_of(preprocessor, "resample");
        number.is_number_integer() && number >= 0 && number < kOfPillow.size())
      pixels.interpolation = kOfPillow.at(number.get<std::size_t>());
  }
  const bool is_wrong = std::ranges::any_of(pixels.stddev, [](double deviation) { return !(deviation > 0); });
  if (is_wrong || pixels.mean.size() != pixels.stddev.size())
    refuse_value(source, "the deviation of pixels", pixels.stddev, "numbers above 0, as many as the mean has");
  return pixels;
}

}  // namespace sluice::models
