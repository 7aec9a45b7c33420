#include "train/train_schedule.h"

#include <string>
#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/executor.h"
#include "pipeline/schedule/generators.h"

namespace sluice::train {
namespace {

pipeline::Schedule make(std::string_view name, int stages, int chunks) {
  pipeline::PipelineShape shape{.stages = stages, .micro_batches = chunks, .virtual_stages = {}};
  // With one stage a device it is still a schedule of its own. interleaved is not: there it is eager-1f1b.
  if (name == "looped-bfs") shape.virtual_stages = 1;
  return pipeline::make_schedule(name, shape);
}

std::vector<std::string> names_that_run() {
  constexpr int kStages = 2;
  constexpr int kChunks = 4;
  std::vector<std::string> names;
  for (const auto& name : pipeline::schedule_names()) {
    if (!pipeline::why_not_run(make(name, kStages, kChunks))) names.push_back(name);
  }
  return names;
}

}  // namespace

pipeline::Schedule make_train_schedule(std::string_view name, int stages, int chunks) {
  pipeline::Schedule schedule = make(name, stages, chunks);
  if (const auto why = pipeline::why_not_run(schedule)) {
    throw ConfigError(concat("pipeline.schedule = \"", name, "\" ", *why,
                             ", which training does not do yet; choose one of: ", join(names_that_run(), ", "),
                             " (`sluice schedule ", name, "` costs and draws it)"));
  }
  return schedule;
}

}  // namespace sluice::train
