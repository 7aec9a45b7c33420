// exported_model: the models that a configuration names with model.name = "pt2" and model.file.
// Threads: any, after add_exported_models(). Errors: those of read_archive() and make_layers().
#pragma once

#include "models/model.h"

namespace sluice::graph {

// Adds the family to models::families(). Call it once, before other threads start.
void add_exported_models();

// The file is read once, and again only if it has changed.
[[nodiscard]] models::FileDescription describe_exported(const models::ModelOptions& options);

}  // namespace sluice::graph
