#include <torch/version.h>

#include <memory>

#include "app/commands.h"
#include "app/options.h"
#include "app/version.h"
#include "core/concat.h"
#include "core/text.h"
#include "core/text_table.h"
#include "data/dataset.h"
#include "device/cpu_threads.h"
#include "device/device.h"
#include "models/model.h"

namespace sluice::app {
namespace {

using nlohmann::ordered_json;

void add_listing(CLI::App& app, const std::string& name, const std::string& help,
                 void (*print)(const OutputArguments&)) {
  CLI::App* command = app.add_subcommand(name, help);
  const auto output = std::make_shared<OutputArguments>();
  output->add_to(*command);
  command->callback([output, print] { print(*output); });
}

void print_models(const OutputArguments& output) {
  ordered_json list = ordered_json::array();
  std::vector<TextRow> rows{{"model.name", "model.size", "layers", "parameters"}};
  for (const auto& model : models::list_models()) {
    list.push_back(
        {{"name", model.name}, {"size", model.size}, {"layers", model.layers}, {"parameters", model.parameters}});
    rows.push_back({model.name, model.size.empty() ? "-" : model.size, std::to_string(model.layers),
                    human_count(static_cast<std::uint64_t>(model.parameters))});
  }
  output.print({{"models", list}}, text_table(rows));
}

void print_datasets(const OutputArguments& output) {
  ordered_json list = ordered_json::array();
  std::vector<TextRow> rows{{"data.name", "default path", "what"}};
  for (const auto& dataset : data::list_datasets()) {
    list.push_back({{"name", dataset.name},
                    {"what", dataset.what},
                    {"default_path", dataset.default_path.string()},
                    {"files", dataset.files}});
    rows.push_back({dataset.name, dataset.default_path.empty() ? "-" : dataset.default_path.string(), dataset.what});
  }
  output.print({{"datasets", list}}, text_table(rows));
}

void print_devices(const OutputArguments& output) {
  ordered_json list = ordered_json::array();
  std::vector<TextRow> rows{{"device", "model", "memory"}};
  for (const auto& device : device::list_devices()) {
    list.push_back(
        {{"device", device::to_string(device.device)}, {"model", device.model}, {"memory_bytes", device.memory_bytes}});
    rows.push_back({device::to_string(device.device), device.model, human_bytes(device.memory_bytes)});
  }
  const int cores = device::available_cores();
  output.print({{"devices", list}, {"cpu_cores", cores}},
               concat(text_table(rows), "\n", cores,
                      " CPU cores; any number of virtual CPU devices cpu:0, cpu:1, ... shares them (device.list)"));
}

void print_version(const OutputArguments& output) {
  output.print({{"sluice", kVersion}, {"libtorch", TORCH_VERSION}, {"cuda_build", kWithCuda}}, version_text());
}

}  // namespace

std::string version_text() {
  return concat("sluice ", kVersion, " (LibTorch ", TORCH_VERSION, ", ", kWithCuda ? "with" : "without", " CUDA)");
}

void add_listings(CLI::App& app) {
  add_listing(app, "models", "List the models (model.name, model.size)", print_models);
  add_listing(app, "datasets", "List the data sets (data.name)", print_datasets);
  add_listing(app, "devices", "List the devices of this machine", print_devices);
  add_listing(app, "version", "Print the versions of Sluice and LibTorch", print_version);
}

}  // namespace sluice::app
