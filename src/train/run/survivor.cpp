#include "train/run/survivor.h"

#include <sys/stat.h>

#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/own_time.h"
#include "storage/checkpoint_store.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

// A killed process keeps its locks until the kernel has released its memory.
constexpr std::chrono::seconds kUntilUnlocked{5};
constexpr std::chrono::milliseconds kBetweenTries{100};
constexpr int kAll = std::numeric_limits<int>::max();

std::uint64_t inode_of(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_ino) : 0;
}

storage::RunDir take_over(const fs::path& path) {
  std::optional<storage::RunDir> run_dir;
  std::optional<ConfigError> in_use;
  const bool is_ours = OwnLimit(kUntilUnlocked).retry(kBetweenTries, [&] {
    try {
      run_dir.emplace(path, storage::RunDirMode::kTakeOver);
    } catch (const ConfigError& error) {
      in_use = error;
    }
    return run_dir.has_value();
  });
  if (!is_ours) throw ConfigError(*in_use);
  return std::move(*run_dir);
}

}  // namespace

RunDirId id_of(const storage::RunDir& run_dir) { return {fs::absolute(run_dir.path()), inode_of(run_dir.path())}; }

storage::RunDir take_over(const RunDirId& run_dir_id, const fs::path& own_run_dir, const fs::path& config_file) {
  std::string why = "this machine cannot reach it";
  if (run_dir_id.inode != 0 && inode_of(run_dir_id.path) == run_dir_id.inode) {
    try {
      return take_over(run_dir_id.path);
    } catch (const ConfigError& error) {  // a process that was stopped still holds it, and may write when it wakes up
      why = error.what();
    }
  }
  storage::RunDir run_dir = own_run_dir.empty() || fs::exists(own_run_dir)
                                ? storage::RunDir::create_named("runs", config_file.stem().string())
                                : storage::RunDir(own_run_dir, storage::RunDirMode::kNew);
  log_warning("records and checkpoints go on in ", run_dir.path().string(), " instead of ", run_dir_id.path.string(),
              ": ", why);
  return run_dir;
}

bool saves_after(const comm::LostProcess& lost, int rank) {
  using How = comm::LostProcess::How;
  if (lost.how == How::kStopped) return false;      // nothing was trained
  if (lost.how == How::kGivenUp) return rank == 0;  // the other processes have dropped this one
  return rank == 0 ? lost.rank != 0 : lost.rank == 0;
}

LoopPeers loop_peers(Peers& peers, std::function<void(const Progress&)> save) {
  const auto must_save_after = [&peers](const Error& failure) {
    const auto lost = peers.is_alone() ? std::nullopt : peers.loss_behind(failure);
    return lost && saves_after(*lost, peers.process().rank);
  };
  return {.hold = [&peers] { return peers.hold(); },
          .must_save_after = must_save_after,
          .goes_on_after = [&peers](const Error& failure) { return peers.changes_group(failure); },
          .has_guests = [&peers] { return peers.has_guests(); },
          .admit_guests = [&peers] { peers.admit_guests(); },
          .save = std::move(save),
          .are_there = !peers.is_alone()};
}

Peers::BeforeEnd rescue_before_end(Loop& loop, int rank) {
  return [&loop, rank](const comm::LostProcess* lost) {
    if (lost != nullptr && saves_after(*lost, rank)) loop.rescue();
  };
}

void save_for_rank_0(const RunDirId& run_dir_id, std::int64_t step,
                     const std::function<storage::CheckpointContents(const report::MetricsPosition&)>& capture) {
  if (run_dir_id.inode == 0 || inode_of(run_dir_id.path) != run_dir_id.inode) {
    return log_warning(concat("rank 0 is lost, and this machine cannot reach its run directory ",
                              run_dir_id.path.string(),
                              ": the steps after its newest checkpoint are lost; put the run directory on a shared "
                              "disk, or set checkpoint.every_steps"));
  }
  const storage::RunDir run_dir = take_over(run_dir_id.path);
  const auto is_replaced = [&] { return run_dir.presence() == storage::RunDir::Presence::kReplaced; };
  storage::CheckpointStore checkpoints(run_dir.checkpoints_dir(), kAll, is_replaced);
  if (const auto steps = checkpoints.steps(); !steps.empty() && steps.front() >= step) return;
  const fs::path saved = checkpoints.save(step, capture(report::position_after_step(run_dir.metrics_file(), step)));
  log_info("rank 0 is lost: saved the state after step ", step, " in its place: ", saved.string());
}

}  // namespace sluice::train
