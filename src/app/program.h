// program: the whole command line as a function: parses it, runs one sub-command, turns errors into one line and an
// exit code. A C++ program with models and data sets of its own calls it from main() and gets pipelines, replicas,
// checkpoints and profiles for them (docs/own_models.md). The command `sluice` is the one without any.
// To be called once, first thing in main(). Errors end the process with their exit code (core/error.h).
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
