#include "data/dataset.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "data/cifar.h"
#include "data/idx_dataset.h"
#include "data/image_folder.h"
#include "data/labelled_text.h"
#include "data/npy_dataset.h"
#include "data/shapes.h"
#include "data/squad_dataset.h"
#include "data/subset.h"
#include "data/tar_dataset.h"
#include "data/tensors_dataset.h"
#include "data/text.h"
#include "data/token_dataset.h"

namespace sluice::data {
namespace {

std::unique_ptr<Dataset> open_idx_folder(const DatasetOptions& options, Split split) {
  const bool fashion = options.name == "fashion_mnist";
  return open_idx_dataset({.name = options.name,
                           .folder = options.path,
                           .mean = fashion ? 0.2860 : 0.1307,
                           .stddev = fashion ? 0.3530 : 0.3081,
                           .when_missing = fashion ? "run `apt-get install dataset-fashion-mnist` or set data.path"
                                                   : "put the four files of MNIST there or set data.path"},
                          split);
}

auto opening_cifar(CifarKind kind) {
  return [kind](const DatasetOptions& options, Split split) { return open_cifar(kind, options.path, split); };
}

auto opening_path(std::unique_ptr<Dataset> (*open)(const std::filesystem::path&, Split)) {
  return [open](const DatasetOptions& options, Split split) { return open(options.path, split); };
}

std::unique_ptr<Dataset> open_shapes(const DatasetOptions& options, Split split) {
  return make_shapes({.samples = options.samples,
                      .channels = options.channels,
                      .image_size = options.image_size,
                      .seed = options.seed},
                     split);
}

std::unique_ptr<Dataset> open_text_file(const DatasetOptions& options, Split split) {
  if (!options.text.tokenizer.empty()) return open_tokenized_text("text", options.path, options.text, split);
  return open_text(options.path, options.context, split);
}

auto opening_table(const char* name) {
  return [name](const DatasetOptions& options, Split split) {
    return options.text.label_kind == LabelKind::kNone ? open_tokenized_text(name, options.path, options.text, split)
                                                       : open_labelled_text(name, options.path, options.text, split);
  };
}

auto opening_texts(std::unique_ptr<Dataset> (*open)(const std::filesystem::path&, const TextOptions&, Split)) {
  return [open](const DatasetOptions& options, Split split) { return open(options.path, options.text, split); };
}

std::unique_ptr<Dataset> open_toy(const DatasetOptions& options, Split split) {
  return make_toy({.samples = options.samples, .context = options.context, .seed = options.seed}, split);
}

std::vector<DatasetEntry> text_entries() {
  return {
      {{.name = "text",
        .what = "one file (data.path), its last tenth for testing; 256 tokens, its bytes, without data.tokenizer",
        .default_path = {},
        .files = {}},
       open_text_file},
      {{.name = "squad",
        .what = "questions on texts in SQuAD's JSON, versions 1.1 and 2.0",
        .default_path = {},
        .files = {"train.json or train-v*.json", "dev.json or dev-v*.json"}},
       opening_texts(open_squad)},
      {{.name = "jsonl",
        .what = "texts or pairs of texts, with labels or without, as JSON objects",
        .default_path = {},
        .files = {"train.jsonl", "test.jsonl"}},
       opening_table("jsonl")},
      {{.name = "csv",
        .what = "texts or pairs of texts, with labels or without, as CSV or TSV with a row of names",
        .default_path = {},
        .files = {"train.csv or train.tsv", "test.csv or test.tsv"}},
       opening_table("csv")},
      {{.name = "tokens",
        .what = "token files of `sluice tokenize`, nanoGPT, llm.c or Megatron",
        .default_path = {},
        .files = {"*train*.tokens or *train*.bin", "*val*.tokens or *val*.bin"}},
       opening_texts(open_tokens)},
      {{.name = "toy",
        .what = "drawn from a seed: sequences of 64 tokens from a Markov chain; needs no files",
        .default_path = {},
        .files = {}},
       open_toy},
  };
}

std::vector<DatasetEntry> image_entries() {
  return {
      {{.name = "fashion_mnist",
        .what = "60,000 + 10,000 grey 28x28 images of clothes in 10 classes",
        .default_path = "/usr/share/datasets/fashion-mnist",
        .files = idx_file_names()},
       open_idx_folder},
      {{.name = "mnist",
        .what = "60,000 + 10,000 grey 28x28 images of digits in 10 classes",
        .default_path = {},
        .files = idx_file_names()},
       open_idx_folder},
      {{.name = "cifar10",
        .what = "50,000 + 10,000 colour 32x32 images in 10 classes",
        .default_path = {},
        .files = cifar_file_names(CifarKind::k10)},
       opening_cifar(CifarKind::k10)},
      {{.name = "cifar100",
        .what = "50,000 + 10,000 colour 32x32 images in 100 classes",
        .default_path = {},
        .files = cifar_file_names(CifarKind::k100)},
       opening_cifar(CifarKind::k100)},
      {{.name = "image_folder",
        .what = "JPEG, PNG and WebP files, a folder a class, as torchvision's ImageFolder has them",
        .default_path = {},
        .files = {"train/CLASS/PICTURE", "val/CLASS/PICTURE"}},
       opening_path(open_image_folder)},
      {{.name = "npy",
        .what = "images of your own as NumPy arrays of bytes, with labels",
        .default_path = {},
        .files = npy_file_names()},
       opening_path(open_npy_dataset)},
      {{.name = "tar",
        .what = "pictures and their classes in tar files, as WebDataset lays them out",
        .default_path = {},
        .files = {"train/*.tar", "val/*.tar"}},
       opening_path(open_tar_dataset)},
      {{.name = "tensors",
        .what = "samples for model.name = \"pt2\": a tensor [n, ...] for each argument of forward()",
        .default_path = {},
        .files = {"train.safetensors", "test.safetensors"}},
       opening_path(open_tensors)},
      {{.name = "shapes",
        .what = "drawn from a seed: noisy coloured figures of 10 kinds; needs no files",
        .default_path = {},
        .files = {}},
       open_shapes},
  };
}

std::vector<DatasetEntry>& entries() {
  static std::vector<DatasetEntry> all = [] {
    std::vector<DatasetEntry> joined = image_entries();
    std::ranges::copy(text_entries(), std::back_inserter(joined));
    return joined;
  }();
  return all;
}

[[noreturn]] void reject_name(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& entry : entries()) names.push_back(entry.description.name);
  throw ConfigError(
      concat("data.name = \"", name, "\" is unknown; choose one of: ", join(names, ", "), did_you_mean(name, names)));
}

}  // namespace

void rethrow_with_sample(const DatasetInfo& info, std::int64_t index) {
  const auto where = concat("sample ", index, " of ", info.name, " (", name_of(info.split), ")");
  try {
    throw;
  } catch (const Error& error) {
    throw error.with_context(where);
  } catch (const std::bad_alloc&) {
    throw OutOfMemoryError(where, ": no memory left to read it; use fewer data.workers or smaller batches");
  } catch (const std::exception& error) {
    throw DataError(where, ": ", error.what());
  }
}

void Dataset::read(std::int64_t, std::span<std::uint8_t>) const {
  check(false, concat("data set ", info().name, " with samples of bytes"));
}

Fields Dataset::read_fields(std::span<const std::int64_t> ids) const {
  const std::int64_t context = info().context;
  const auto count = static_cast<std::int64_t>(ids.size());
  const at::Tensor inputs = uninitialized({count, context}, at::kLong),
                   targets = uninitialized({count, context}, at::kLong);
  std::vector<std::uint8_t> tokens(static_cast<std::size_t>(context) + 1);
  auto* input = inputs.mutable_data_ptr<std::int64_t>();
  auto* target = targets.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t id : ids) {
    try {
      read(id, tokens);
    } catch (...) {
      rethrow_with_sample(info(), id);
    }
    input = std::copy(tokens.begin(), tokens.end() - 1, input);
    target = std::copy(tokens.begin() + 1, tokens.end(), target);
  }
  return {{kInputs, inputs}, {kTargets, targets}};
}

const FieldInfo* DatasetInfo::field(std::string_view wanted) const {
  const auto found = std::ranges::find(fields, wanted, &FieldInfo::name);
  return found == fields.end() ? nullptr : &*found;
}

std::int64_t Dataset::target(std::int64_t) const {
  check(false, concat("data set ", info().name, " with targets besides its samples"));
  return 0;
}

std::vector<std::uint8_t> Dataset::encoded(std::int64_t) const {
  check(false, concat("data set ", info().name, " with files of pictures"));
  return {};
}

std::string Dataset::file_of(std::int64_t) const {
  check(false, concat("data set ", info().name, " with files of pictures"));
  return {};
}

std::int64_t Dataset::checked(std::int64_t index) const {
  check(index >= 0 && index < size(), "a sample index below the size of the data set");
  return index;
}

std::string_view name_of(Split split) { return split == Split::kTrain ? "train" : "test"; }

std::unique_ptr<Dataset> open_dataset(const DatasetOptions& options, Split split) {
  if (options.limit < 0) throw ConfigError("data.limit = ", options.limit, " is negative; 0 means all samples");
  const auto is_asked_for = [&](const DatasetEntry& entry) { return entry.description.name == options.name; };
  const auto entry = std::ranges::find_if(entries(), is_asked_for);
  if (entry == entries().end()) reject_name(options.name);

  DatasetOptions resolved = options;
  if (resolved.path.empty()) resolved.path = entry->description.default_path;
  if (resolved.path.empty() && !entry->description.files.empty()) {
    throw ConfigError("data.path is empty, but data.name = \"", options.name,
                      "\" has no default folder; set data.path to the folder of its files");
  }
  auto dataset = entry->open(resolved, split);
  return options.limit == 0 ? std::move(dataset) : limited(std::move(dataset), options.limit);
}

void add_dataset(DatasetEntry entry) {
  const std::string& name = entry.description.name;
  check(static_cast<bool>(entry.open), concat("DatasetEntry::open is set for data set ", name));
  if (name.empty()) throw ConfigError("a data set without a name was added; set DatasetDescription::name");
  for (const auto& known : entries()) {
    if (known.description.name == name)
      throw ConfigError("a data set \"", name, "\" already exists; give yours another name");
  }
  entries().push_back(std::move(entry));
}

std::vector<DatasetDescription> list_datasets() {
  std::vector<DatasetDescription> descriptions;
  for (const auto& entry : entries()) descriptions.push_back(entry.description);
  return descriptions;
}

}  // namespace sluice::data
