// archive: reads a file of torch.export (.pt2). Nothing is unpickled, and nothing in the file is run.
// Threads: any. Errors: CheckpointError for a damaged file, StorageError if it cannot be read, ConfigError for what is
// not supported.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "graph/program.h"

namespace sluice::graph {

struct SavedTensor {
  at::Tensor value;
  std::string owner;  // the first name of the same tensor in state_dict(): another one if it is tied
  bool requires_grad = false;
};

struct Archive {
  Program program;                               // in training mode, as exported
  std::optional<Program> evaluation;             // if the file has it: scripts/export_model.py
  std::map<std::string, SavedTensor> state;      // of parameters and buffers, by their names in state_dict()
  std::map<std::string, SavedTensor> constants;  // and of buffers that state_dict() lacks
};

[[nodiscard]] Archive read_archive(const std::filesystem::path& file);

}  // namespace sluice::graph
