// program: the whole command line as a function: parses it, runs one sub-command, and reports errors as one line and an
// exit code (core/error.h). A program with its own models and data sets passes them as Extensions
// (docs/tutorial/first_own_model.md). Call it once, first in main().
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
