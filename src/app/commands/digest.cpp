#include <memory>
#include <string>

#include "app/commands.h"
#include "app/options.h"
#include "core/concat.h"
#include "train/study/digest_checkpoint.h"

namespace sluice::app {
namespace {

struct DigestArguments {
  std::string checkpoint;
  OutputArguments output;
};

void run_digest_command(const DigestArguments& arguments) {
  const nlohmann::ordered_json digests = train::digest_checkpoint(arguments.checkpoint);
  std::string text = concat("step ", digests.at("step").get<std::int64_t>());
  for (const auto& [name, digest] : digests.items())
    if (digest.is_string()) text += concat("\n", name, "  ", digest.get<std::string>());
  arguments.output.print(digests, text);
}

}  // namespace

void add_digest(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "digest", "Print the digests of a checkpoint's weights and optimizer state, which do not depend on the layout");
  const auto arguments = std::make_shared<DigestArguments>();
  command
      ->add_option("CHECKPOINT", arguments->checkpoint,
                   "A run directory (its newest checkpoint), or one of its checkpoints/step-N")
      ->required()
      ->check(not_empty);
  arguments->output.add_to(*command);
  command->callback([arguments] { run_digest_command(*arguments); });
}

}  // namespace sluice::app
