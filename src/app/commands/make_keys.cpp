#include <filesystem>
#include <memory>

#include "app/commands.h"
#include "app/options.h"
#include "core/concat.h"
#include "core/error.h"
#include "ps/net/frame_socket.h"
#include "storage/files.h"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;

struct MakeKeysArguments {
  std::string folder;
};

void write_key(const fs::path& file, const std::string& key) {
  storage::write_text_atomically(file, key + "\n");
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
}

void run_make_keys_command(const MakeKeysArguments& arguments) {
  const fs::path folder(arguments.folder), secret = folder / "server.key", own = folder / "server.pub";
  if (fs::exists(secret) || fs::exists(own))
    throw ConfigError(concat(folder.string(), " already has keys; remove them first, or name another folder"));
  const ps::Keys keys = ps::make_keys();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw StorageError("cannot create ", folder.string(), ": ", error.message(),
                       "; name a folder that you may write to or create");
  write_key(secret, keys.server_secret);
  write_key(own, keys.server_public);
  print_out(concat(
      secret.string(), " is for the server only. ", own.string(),
      " is for the workers; anyone who has it can join as a worker. Keep both private. Set ps.keys to this folder.\n"));
}

}  // namespace

void add_make_keys(CLI::App& app) {
  CLI::App* command = app.add_subcommand("make-keys", "Create the keys of a parameter server and its workers");
  const auto arguments = std::make_shared<MakeKeysArguments>();
  command->add_option("DIR", arguments->folder, "Folder for server.key and server.pub")->required()->check(not_empty);
  command->callback([arguments] { run_make_keys_command(*arguments); });
}

}  // namespace sluice::app
