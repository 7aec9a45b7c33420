#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/commands/schedule_arguments.h"
#include "app/commands/schedule_costs.h"
#include "app/commands/schedule_report.h"
#include "app/commands/schedule_source.h"
#include "app/options.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/svg.h"
#include "storage/files.h"

namespace sluice::app {
namespace {

// Rejects an output file that is also an input, and more than one output on standard output.
void check_outputs(const ScheduleArguments& arguments) {
  const int printed = (arguments.output.json ? 1 : 0) + (arguments.svg == kStandardStream ? 1 : 0) +
                      (arguments.text == kStandardStream ? 1 : 0);
  if (printed > 1) throw ConfigError("--json, --svg - and --text - all write to standard output; give one of them");
  if (!arguments.svg.empty() && arguments.svg == arguments.text)
    throw ConfigError("--svg and --text both write ", arguments.svg, "; give one of them another name");
  std::vector<std::filesystem::path> inputs;
  if (!arguments.order.empty() && arguments.order != kStandardStream) inputs.emplace_back(arguments.order);
  const auto check = [&](const char* option, const std::string& target) {
    if (!target.empty() && target != kStandardStream) storage::check_output(option, target, inputs);
  };
  check("--svg", arguments.svg);
  check("--text", arguments.text);
}

void write(const std::string& target, const std::string& text) {
  if (target == kStandardStream) {
    print_out(text);
  } else {
    storage::write_text_atomically(target, text);
  }
}

void run_schedule_command(const ScheduleArguments& arguments) {
  check_outputs(arguments);
  ScheduleFindings findings{.schedule = proved_schedule(arguments), .simulation = {}, .peak_bytes = {}};
  findings.peak_bytes = peak_bytes_of(arguments, findings.schedule);
  findings.simulation = pipeline::simulate(findings.schedule, costs_of(arguments, findings.schedule));
  if (!arguments.svg.empty()) write(arguments.svg, pipeline::draw_svg(findings.schedule, findings.simulation));
  if (!arguments.text.empty()) write(arguments.text, pipeline::draw(findings.schedule));
  if (arguments.output.json) {
    arguments.output.print(to_json(findings), "");
  } else if (arguments.svg != kStandardStream && arguments.text != kStandardStream) {
    arguments.output.print({}, to_text(findings));
  }
}

// One word per list option; otherwise a NAME after it would become a list entry.
template <typename Value>
CLI::Option* add_list(CLI::App& command, const std::string& name, std::vector<Value>& values, const std::string& help) {
  return command.add_option(name, values, help)->delimiter(',')->allow_extra_args(false);
}

void add_time_options(CLI::App& command, ScheduleArguments& arguments) {
  const auto add_times = [&](const std::string& name, std::vector<double>& times, const std::string& help) {
    return add_list(command, name, times, help)->type_name("T[,T...]");
  };
  add_times("--forward", arguments.forward,
            "Forward time of one micro-batch on a device, all its virtual stages together, in any unit; one "
            "value for all devices or one per device (default 1)");
  auto* backward = add_times(
      "--backward", arguments.backward,
      "Instead of --input and --weight: backward time of one micro-batch on a device; I and W take half each");
  auto* input =
      add_times("--input", arguments.input, "Instead of --backward: time of the input gradients, I (default 1)");
  auto* weight =
      add_times("--weight", arguments.weight, "Instead of --backward: time of the weight gradients, W (default 1)");
  backward->excludes(input)->excludes(weight);
  command.add_option("--hop", arguments.hop, "Time to send a result from one device to another (default 0)")
      ->type_name("T");
  command
      .add_option("--overlap", arguments.overlap,
                  "Share of the shorter part of an overlapped pair that the longer one hides, 0 to 1 (default 0); "
                  "only for schedules with pairs: dualpipe-v, or (0F3;1B2) in a file")
      ->type_name("R")
      ->check(CLI::Range(0.0, 1.0));
}

void add_byte_options(CLI::App& command, ScheduleArguments& arguments) {
  constexpr auto kGroup =
      "Bytes of a device, all its virtual stages together; one value for all devices or one per device";
  const auto add_bytes = [&](const std::string& name, std::vector<std::uint64_t>& bytes, const std::string& help) {
    return add_list(command, name, bytes, help)
        ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false).description(""))
        ->type_name("SIZE[,SIZE...]")
        ->group(kGroup);
  };
  add_bytes("--activation-bytes", arguments.activation_bytes,
            "Activations of one micro-batch, kept from F until B or I ends; for example 64MiB or 1000 "
            "(default 0)");
  add_bytes("--stash-bytes", arguments.stash_bytes,
            "Tensors of one micro-batch, kept from I until W ends (default: as --activation-bytes)");
  add_bytes("--fixed-bytes", arguments.fixed_bytes,
            "Permanent tensors: weights, gradients, optimizer state (default 0)");
  add_bytes("--memory", arguments.memory, "Memory of the device; a schedule that needs more is refused");
  auto* sent = add_bytes("--sent-bytes", arguments.sent_bytes,
                         "Bytes that each stage sends to the next for one micro-batch, and receives as a gradient");
  auto* bandwidth =
      command
          .add_option("--bandwidth", arguments.bandwidth,
                      "Bytes per unit of time of a queue; each pair of devices has one for activations and one for "
                      "gradients")
          ->type_name("N")
          ->group(kGroup);
  sent->needs(bandwidth);
  bandwidth->needs(sent);
}

}  // namespace

void add_schedule(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "schedule", "Draw a pipeline schedule and compute its cost, or check a schedule file of your own");
  const auto arguments = std::make_shared<ScheduleArguments>();
  auto* name = command->add_option("NAME", arguments->name, concat("One of: ", join(pipeline::schedule_names(), ", ")));
  command->add_option("--stages", arguments->stages, "Devices of the pipeline")
      ->type_name("P")
      ->check(CLI::Range(1, 1024));
  command->add_option("--chunks", arguments->chunks, "Micro-batches of a step")
      ->type_name("M")
      ->check(CLI::Range(1, 65'536));
  command
      ->add_option("--virtual", arguments->virtual_stages,
                   "Stages per device: any number for interleaved and looped-bfs (default 2), 2 for zb-v and "
                   "dualpipe-v")
      ->type_name("V")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--order", arguments->order,
                   "Instead of NAME: a schedule file (- for standard input) with one line of actions per device, "
                   "such as 0F0 0F1 0I0 0W0 (3F2;0B1), or a CSV dump of torch.distributed.pipelining. The "
                   "header's stages= counts stages, not devices (they differ with several stages per device)")
      ->type_name("FILE")
      ->check(not_empty)
      ->excludes(name);
  add_time_options(*command, *arguments);
  add_byte_options(*command, *arguments);
  command->add_option("--svg", arguments->svg, "Also write a picture; - prints it instead of the table")
      ->type_name("FILE")
      ->check(not_empty);
  command
      ->add_option("--text", arguments->text,
                   "Also write the schedule file, as --order reads it; - prints it instead of the table")
      ->type_name("FILE")
      ->check(not_empty);
  arguments->output.add_to(*command);
  command->callback([arguments] { run_schedule_command(*arguments); });
}

}  // namespace sluice::app
