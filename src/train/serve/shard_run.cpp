#include "train/serve/shard_run.h"

#include <limits>
#include <optional>
#include <string>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/own_time.h"
#include "core/text.h"
#include "device/cpu_threads.h"
#include "pipeline/failure.h"
#include "ps/net/log_files.h"
#include "ps/net/shard_server.h"
#include "storage/files.h"
#include "storage/folder_lock.h"
#include "train/serve/server_events.h"
#include "train/setup/agreement.h"
#include "train/setup/server_settings.h"
#include "train/setup/stop_signal.h"

namespace sluice::train {
namespace {

constexpr Nanoseconds kLookAtSignals = 100'000'000;  // until the next check for signals
// Limit for the lead server to learn of a stop and fetch this server's weights.
constexpr Nanoseconds kUntilTheOthersKnow = 30'000'000'000;
constexpr Nanoseconds kUntilTheyHear = 2'000'000'000;   // limit if this server has no weights
constexpr Nanoseconds kBetweenLines = 300'000'000'000;  // between log lines that show progress

struct OwnFolder {
  std::filesystem::path path;
  FileDescriptor lock = FileDescriptor();
};

OwnFolder take_folder(const config::Config& config, const ServerRole& role, const std::filesystem::path& run_dir) {
  const bool must_have = config.ps.log != "off";
  if (run_dir.empty() && must_have)
    throw ConfigError("ps.log = \"", config.ps.log, "\" needs a folder for the log of server ", role.server,
                      "; set it with --run-dir");
  if (run_dir.empty()) return {};
  try {
    const std::filesystem::path path = run_dir / "servers" / std::to_string(role.server);
    storage::make_directories(path);
    OwnFolder own{path, storage::lock_folder(path, "folder", "give each server its own --server number")};
    log_to_file(path / "log.txt");
    return own;
  } catch (const StorageError& error) {
    if (must_have) throw;
    log_warning("this server writes no log.txt: ", error.what());
    return {};
  }
}

// The same command line may start all servers, so --resume is not an error here.
void log_who_resumes(const ServerRole& role, const ShardRunOptions& options, const std::filesystem::path& kept) {
  if (options.resume.empty()) return;
  log_info("--resume ", options.resume, " applies to server 0, which chooses where the run resumes; server ",
           role.server, " gets its shards from server 0", kept.empty() ? "" : concat(" or from ", kept.string()));
}

ps::ShardServerOptions options_of(const config::Config& config, const ServerRole& role, const ShardRunOptions& options,
                                  const std::filesystem::path& folder) {
  const auto [host, port] = role.own();
  return {.host = host,
          .port = port,
          .number = role.server,
          .keys = role.keys,
          .agreement = agreement_of_servers(config, options.launch.version),
          .compression = compression_options(config.ps),
          .optimizer = server_optimizer(config),
          .threads = device::available_cores(),
          .folder = config.ps.log == "off" ? std::filesystem::path{} : folder,
          .outlives = outlives_of(config.ps),
          .peer_timeout = from_s(config.replicas.hang_timeout_s),
          .connect_timeout = from_s(config.replicas.connect_timeout_s)};
}

class MalformedAtTheEnd {
 public:
  explicit MalformedAtTheEnd(const ps::ShardServer& server) : server_(server) {}
  ~MalformedAtTheEnd() { log_malformed(server_.malformed()); }
  MalformedAtTheEnd(const MalformedAtTheEnd&) = delete;
  MalformedAtTheEnd& operator=(const MalformedAtTheEnd&) = delete;

 private:
  const ps::ShardServer& server_;
};

// Serves until the lead server ends the run. A stop signal asks the lead, which then fetches the weights.
ps::ShardsOver serve(ps::ShardServer& server, int number, bool has_log) {
  const OwnClock clock;
  std::optional<Nanoseconds> stop_at;
  Nanoseconds logged_at = clock.now();
  while (!server.over()) {
    server.next(kLookAtSignals);
    if (server.keeper() != nullptr && clock.now() - logged_at >= kBetweenLines) {
      log_info("server ", number, ": serving, ", counted(server.keeper()->version(), "update"), " so far");
      logged_at = clock.now();
    }
    if (!StopSignal::requested()) continue;
    const InterruptedError stopped(concat("stopped by ", StopSignal::name()));
    const Nanoseconds limit = server.keeper() != nullptr ? kUntilTheOthersKnow : kUntilTheyHear;
    if (!stop_at) stop_at = clock.now() + limit;
    if (!server.has_lead() || clock.now() > *stop_at) {
      const bool loses_nothing = server.keeper() == nullptr || has_log;
      if (loses_nothing) throw InterruptedError(stopped);
      throw PeerError(StopSignal::name(), " received, but server 0 did not fetch this server's weights within ",
                      human_duration(to_s(limit)), "; they are lost. Check server 0's log.");
    }
    server.ask_to_stop(stopped);  // repeated in case the message was lost
  }
  return *server.over();
}

}  // namespace

comm::Agreement agreement_of_servers(const config::Config& config, const std::string& version) {
  comm::Agreement agreement = agreement_with_server(config, version);
  agreement["ps.log"] = config.ps.log;
  return agreement;
}

nlohmann::ordered_json run_shard_server(const config::Config& config, const ServerRole& role,
                                        const ShardRunOptions& options) {
  const StopSignal stop_signal(options.launch.end_process ? StopSignal::Afterwards::kIgnored
                                                          : StopSignal::Afterwards::kAsBefore);
  device::use_cpu_threads(1);  // the server's shards already run in parallel
  check_run_dir(options.run_dir);
  check_can_listen(role);
  const OwnFolder folder = take_folder(config, role, options.run_dir);
  const ps::ShardServerOptions server_options = options_of(config, role, options, folder.path);
  log_who_resumes(role, options, server_options.folder);
  ps::ShardServer server(server_options);
  log_info("server ", role.server, " of ", config.ps.servers, ": listening at ", server_options.host, ":",
           server.port(), role.keys.encrypts() ? "" : ", without keys (this machine only)");
  try {
    const MalformedAtTheEnd log_at_end(server);
    const ps::ShardsOver over = serve(server, role.server, !server_options.folder.empty());
    const bool needs_no_log = over.code == 0 || over.code == static_cast<std::int64_t>(ExitCode::kDiverged);
    if (needs_no_log && !server_options.folder.empty())
      ps::remove_logs(server_options.folder, 0, std::numeric_limits<std::int64_t>::max());
    ps::throw_if_failed({over.code, over.what});
  } catch (const InterruptedError&) {
    throw;
  } catch (const Error& error) {
    server.fail(error);
    throw;
  } catch (...) {
    const Error error = pipeline::describe_failure(std::current_exception(), "a server of shards");
    server.fail(error);
    throw Error(error);
  }
  const std::int64_t updates = server.keeper() != nullptr ? server.keeper()->version() : 0;
  log_result(
      concat("server ", role.server, ": the run ",
             server.keeper() != nullptr ? concat("is complete after update ", updates) : "was already complete"));
  return {{"server", role.server}, {"outcome", "done"}, {"updates", updates}};
}

}  // namespace sluice::train
