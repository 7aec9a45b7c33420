// program: the whole command line as a function: runs one sub-command and turns errors into one line and an exit code
// (core/error.h). Call it once, first in main(), with Extensions for own models (docs/tutorial/first_own_model.md).
#pragma once

#include <vector>

#include "data/dataset.h"
#include "models/family.h"

namespace sluice::app {

struct Extensions {
  std::vector<models::Family> models;
  std::vector<data::DatasetEntry> datasets;
};

int run_program(int argc, char** argv, Extensions extensions = {});

}  // namespace sluice::app
