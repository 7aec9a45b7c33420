// libFuzzer target: any text gives a one-line ConfigError or a schedule that survives printing and reading; and one
// that validate() accepts also runs, costs what its work costs at least, and can be drawn.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/progress.h"
#include "pipeline/schedule/simulate.h"
#include "pipeline/schedule/svg.h"
#include "pipeline/schedule/timeline.h"
#include "pipeline/schedule/validate.h"

namespace {

using namespace sluice::pipeline;

void require(bool ok) {
  if (!ok) std::abort();
}

void use_valid(const Schedule& schedule) {
  const std::vector<StepCost> devices(schedule.devices.size());
  const Simulation result =
      simulate(schedule, {.stages = share_costs(schedule, devices), .sent_bytes = {}, .link = {}});
  double most_busy = 0;
  for (const auto& device : result.devices) most_busy = std::max(most_busy, device.busy);
  require(result.makespan >= most_busy && result.makespan > 0);
  validate(schedule, {.transport = {.receive_buffers = needed_receive_buffers(schedule), .tied = {}}});
  require(!draw_timeline(schedule, result).empty());
  require(!draw_svg(schedule, result).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(bytes, bytes + size);
  try {
    const Schedule schedule = parse_schedule(text, "fuzz.txt");
    require(parse_schedule(draw(schedule)) == schedule);
    validate(schedule);
    use_valid(schedule);
  } catch (const sluice::ConfigError& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
