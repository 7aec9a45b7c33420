// survivor: decides which process saves when another one is lost: rank 0 if it lives, else one that sees rank 0's run
// directory and gets its lock, which a running rank 0 still holds. Threads: any. Errors: those of storage/run_dir.h and
// storage/checkpoint_store.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "comm/lost_process.h"
#include "report/metrics_writer.h"
#include "storage/checkpoint.h"
#include "storage/run_dir.h"
#include "train/run/loop.h"
#include "train/setup/peers.h"
#include "train/setup/run_state.h"

namespace sluice::train {

// Identifies rank 0's run directory, so that other processes can check that they see the same one.
struct RunDirId {
  std::filesystem::path path;  // absolute
  std::uint64_t inode = 0;     // of the directory; the same on every machine that shares the disk

  // Stores the path as numbers, because it need not be UTF-8.
  [[nodiscard]] nlohmann::json to_json() const {
    return {{"path", std::vector<std::uint8_t>(path.native().begin(), path.native().end())}, {"inode", inode}};
  }
  [[nodiscard]] static RunDirId from_json(const nlohmann::json& json) {
    const std::vector<std::uint8_t> bytes = json.at("path");
    return {std::string(bytes.begin(), bytes.end()), json.at("inode")};
  }
};
[[nodiscard]] RunDirId id_of(const storage::RunDir& run_dir);

// The run directory of the rank 0 before. If this machine cannot reach it, a new one: own_run_dir (--run-dir), or with
// the default name if that is empty or there already.
[[nodiscard]] storage::RunDir take_over(const RunDirId& run_dir_id, const std::filesystem::path& own_run_dir,
                                        const std::filesystem::path& config_file);

[[nodiscard]] bool saves_after(const comm::LostProcess& lost, int rank);

[[nodiscard]] LoopPeers loop_peers(Peers& peers, std::function<void(const Progress&)> save);
// Saves the state of `loop` if process `rank` is the one to do it. Requires: the loop outlives the result.
[[nodiscard]] Peers::BeforeEnd rescue_before_end(Loop& loop, int rank);

// Saves the state after `step` for a lost rank 0, unless that step or a later one is saved. Removes no checkpoint: only
// rank 0 knows which must stay. If nothing can be saved, a warning or StorageError has the reason.
void save_for_rank_0(const RunDirId& run_dir_id, std::int64_t step,
                     const std::function<storage::CheckpointContents(const report::MetricsPosition&)>& capture);

}  // namespace sluice::train
