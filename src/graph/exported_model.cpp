#include "graph/exported_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "graph/arguments.h"
#include "graph/cutter.h"
#include "graph/instructions.h"
#include "graph/layers.h"
#include "graph/node_arguments.h"
#include "graph/scalar_type.h"
#include "models/family.h"

namespace sluice::graph {
namespace {

namespace fs = std::filesystem;
using models::FileDescription;
using models::TensorInfo;
using models::TextHead;

constexpr const char* kName = "pt2";
constexpr int kLongest = 1'000'000;  // as model.context
constexpr int kUsualContext = 512;   // if neither the program nor model.context limits the length

struct KnownFile {
  fs::file_time_type written;
  std::uintmax_t bytes = 0;
  ArchivePtr archive;
};

ArchivePtr open_archive(const std::string& file) {
  static std::mutex mutex;
  static std::map<std::string, KnownFile> known;
  std::error_code missing;
  const fs::file_time_type written = fs::last_write_time(file, missing);
  const std::uintmax_t bytes = missing ? 0 : fs::file_size(file, missing);
  const std::lock_guard lock(mutex);
  KnownFile& entry = known[file];
  if (missing || !entry.archive || entry.written != written || entry.bytes != bytes)
    entry = {written, bytes, std::make_shared<const Archive>(read_archive(file))};
  return entry.archive;
}

// What a program takes and gives.
class Signature {
 public:
  Signature(ArchivePtr archive, const models::ModelOptions& options)
      : archive_(std::move(archive)), program_(archive_->program), options_(options) {
    for (const Input& input : program_.inputs) {
      if (input.kind == InputKind::kUser) users_.push_back(&input);
    }
    if (users_.empty() || program_.outputs.empty())
      throw ConfigError(options.file, ": the model takes no tensor or gives none; export one that maps samples");
    if (!is_loss() && output_sizes().front().formula.empty())
      throw ConfigError(options.file,
                        ": the first output of the model does not have the size of the batch first; export ",
                        "one that gives a result for each sample, or its loss (--loss)");
  }

  [[nodiscard]] FileDescription describe() const {
    FileDescription file{.kind = kind(), .head = head(), .is_map = is_map()};
    for (const Input* input : users_) file.inputs.push_back(info_of(*input));
    if (is_loss()) {
      add_counter(file);
    } else {
      file.classes = classes();
      file.targets = {target()};
    }
    if (file.kind == SampleKind::kImage) {
      const std::vector<Extent>& image = value_of(*users_.front()).sizes;
      file.channels = static_cast<int>(image[1].size);
      file.image_size = static_cast<int>(image[2].size);
    }
    if (file.kind == SampleKind::kTokens) file.tokens = {static_cast<int>(vocabulary()), context()};
    return file;
  }

 private:
  [[nodiscard]] const Value& value_of(const Input& input) const { return program_.values[input.value]; }
  [[nodiscard]] at::ScalarType type_of(const Input& input) const {
    return scalar_type(value_of(input).type, concat("the input ", input.name));
  }
  [[nodiscard]] const std::vector<Extent>& output_sizes() const {
    return program_.values[program_.outputs.front()].sizes;
  }
  [[nodiscard]] bool is_loss() const { return output_sizes().empty(); }

  [[nodiscard]] SampleKind kind() const {
    if (takes_images()) return SampleKind::kImage;
    return takes_tokens() ? SampleKind::kTokens : SampleKind::kTensors;
  }
  [[nodiscard]] bool takes_images() const {
    const std::vector<Extent>& sizes = value_of(*users_.front()).sizes;
    const auto is_fixed = [](const Extent& extent) { return extent.formula.empty(); };
    if (!at::isFloatingType(type_of(*users_.front())) || sizes.size() != 4) return false;
    if (!is_fixed(sizes[1]) || !is_fixed(sizes[2]) || sizes[2] != sizes[3]) return false;
    return is_loss() ? users_.size() == 2 && has_others_in({"targets"})
                     : users_.size() == 1 && output_sizes().size() == 2;
  }
  [[nodiscard]] bool takes_tokens() const {
    if (at::isFloatingType(type_of(*users_.front())) || value_of(*users_.front()).sizes.size() != 2) return false;
    if (is_loss()) return has_others_in({"mask", "types", "positions", "targets", "starts", "ends"});
    const std::size_t dims = output_sizes().size();
    return (dims == 2 || dims == 3) && has_others_in({"mask", "types", "positions"});
  }
  // All inputs but the first are such fields.
  [[nodiscard]] bool has_others_in(std::initializer_list<std::string_view> fields) const {
    return std::all_of(users_.begin() + 1, users_.end(), [&](const Input* input) {
      return std::ranges::find(fields, usual_field(input->name)) != fields.end();
    });
  }

  [[nodiscard]] TextHead head() const {
    const std::size_t dims = output_sizes().size();
    if (kind() != SampleKind::kTokens || dims == 2) return TextHead::kClassify;
    if (is_loss()) return head_of_loss();
    if (classes() == 2) return TextHead::kQa;
    return classes() == vocabulary() ? TextHead::kLm : TextHead::kTokens;
  }

  [[nodiscard]] TextHead head_of_loss() const {
    for (const Input* input : users_) {
      const std::string field = usual_field(input->name);
      if (field == "starts") return TextHead::kQa;
      if (field == "targets" && value_of(*input).sizes.size() == 2) return TextHead::kTokens;
    }
    return TextHead::kClassify;
  }

  // [n, classes, height, width] and the like.
  [[nodiscard]] bool is_map() const { return output_sizes().size() > 3; }
  [[nodiscard]] std::size_t class_dim() const { return is_map() ? 1 : output_sizes().size() - 1; }
  [[nodiscard]] std::int64_t classes() const {
    return output_sizes().size() < 2 ? 1 : output_sizes()[class_dim()].size;
  }

  // Rows of the table that the input's numbers look up; 0: no table is known.
  [[nodiscard]] std::int64_t rows_of(const Input& input) const {
    for (const Node& node : program_.nodes) {
      if (node.target != "aten::embedding") continue;
      const NodeArguments arguments(node);
      const ValueId table = arguments.value("weight"), ids = arguments.value("indices");
      if (ids == input.value && table != kNoValue) return program_.values[table].sizes.at(0).size;
    }
    return 0;
  }
  [[nodiscard]] std::int64_t vocabulary() const {
    const std::int64_t rows = rows_of(*users_.front());
    return rows > 0 || is_loss() ? rows : output_sizes().back().size;
  }
  [[nodiscard]] int context() const {
    const Extent& length = value_of(*users_.front()).sizes.at(1);
    if (length.formula.empty()) return static_cast<int>(length.size);
    for (const auto& [symbol, largest] : program_.largest) {
      if (length.formula.starts_with(concat("Symbol('", symbol, "'")) && largest <= kLongest)
        return options_.context == 0 ? static_cast<int>(largest)
                                     : std::min(options_.context, static_cast<int>(largest));
    }
    return options_.context != 0 ? options_.context : kUsualContext;
  }

  [[nodiscard]] std::string field_of(const Input& input) const {
    const bool is_by_argument = options_.has_own_fields || kind() == SampleKind::kTensors;
    if (is_by_argument) return input.name;
    return &input == users_.front() ? "inputs" : usual_field(input.name);
  }

  [[nodiscard]] TensorInfo info_of(const Input& input) const {
    TensorInfo info{.name = field_of(input)};
    const std::vector<Extent>& sizes = value_of(input).sizes;
    for (std::size_t i = 1; i < sizes.size(); ++i) {
      const bool is_length = kind() == SampleKind::kTokens && i == 1;
      info.sizes.push_back(is_length ? context() : sizes[i].size);
      if (!sizes[i].formula.empty()) info.open.push_back(static_cast<int>(i) - 1);
    }
    if (at::isFloatingType(type_of(input))) return info;
    const std::int64_t rows = rows_of(input);
    constexpr std::int64_t kFewest = 2;  // every mask and loss takes 0 and 1
    const std::string usual = usual_field(input.name);
    info.bound = rows > 0 ? rows : &input == users_.front() ? std::max(vocabulary(), kFewest) : kFewest;
    info.is_bound_known = rows > 0;
    if (usual == "mask") info.lowest = 1;
    info.is_optional = usual == "mask" || usual == "types" || usual == "positions";
    return info;
  }

  // The targets of logits have their sizes without the dimension of classes.
  [[nodiscard]] TensorInfo target() const {
    TensorInfo info{.name = "targets", .bound = classes() == 1 ? 0 : classes()};
    for (std::size_t i = 1; i < output_sizes().size(); ++i) {
      if (i == class_dim()) continue;
      if (!output_sizes()[i].formula.empty()) info.open.push_back(static_cast<int>(info.sizes.size()));
      info.sizes.push_back(output_sizes()[i].size);
    }
    return info;
  }

  // By the second output if it is a number, else by samples.
  void add_counter(FileDescription& file) const {
    const bool has_count = program_.outputs.size() > 1 && program_.values[program_.outputs[1]].sizes.empty();
    if (!has_count) {
      file.targets = {file.inputs.back()};
      file.count_targets = [](const nn::Tensors& targets) { return targets.front().size(0); };
      return;
    }
    const Section section = Cutter(program_).section_for(program_.outputs[1]);
    std::vector<std::size_t> counted;  // positions of the arguments that the count takes
    for (std::size_t i = 0; i < users_.size(); ++i) {
      if (std::ranges::find(section.inputs, users_[i]->value) == section.inputs.end()) continue;
      file.targets.push_back(file.inputs[i]);
      counted.push_back(i);
    }
    nn::Tensors constants;
    const at::ScalarType type = floating_type_of(*archive_);
    for (const int state : section.states) {
      const at::Tensor& value = archive_->constants.at(program_.inputs[state].name).value;
      constants.push_back(value.scalar_type() == type ? value.to(options_.dtype) : value);
    }
    const InstructionOptions how{.from = type, .to = options_.dtype};
    const auto instructions = std::make_shared<const Instructions>(program_, section, how);
    const auto arguments = std::make_shared<const Arguments>(program_, type, options_.dtype);
    file.count_targets = [archive = archive_, instructions, arguments, counted, constants](const nn::Tensors& targets) {
      const at::NoGradGuard no_grad;
      nn::Tensors taken;
      for (std::size_t i = 0; i < counted.size(); ++i) taken.push_back(arguments->converted(counted[i], targets[i]));
      nn::Tensors states;
      for (const at::Tensor& one : constants) states.push_back(one.to(device_of(taken).value_or(at::kCPU)));
      const auto count =
          instructions->run(states, taken, {.update_statistics = false}).front().to(at::kDouble).item<double>();
      if (count != std::floor(count) || count < 0)
        throw DataError("the second output of the model, the count of its targets, is ", count,
                        "; let it be a whole number, such as (labels >= 0).sum()");
      return static_cast<std::int64_t>(count);
    };
  }

  const ArchivePtr archive_;
  const Program& program_;
  const models::ModelOptions& options_;
  std::vector<const Input*> users_;
};

}  // namespace

models::FileDescription describe_exported(const models::ModelOptions& options) {
  return Signature(open_archive(options.file), options).describe();
}

void add_exported_models() {
  models::add_family({.name = kName,
                      .make =
                          [](const models::ModelOptions& options) {
                            try {
                              return make_layers(open_archive(options.file), models::layer_options(options));
                            } catch (const ConfigError& error) {
                              throw error.with_context(options.file);
                            }
                          },
                      .describe = describe_exported});
}

}  // namespace sluice::graph
