// Where a process that starts while a run goes on finds it.
#include "comm/door.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "comm/processes.h"
#include "comm/ranks.h"
#include "comm/socket_address.h"
#include "core/own_time.h"
#include "support/files.h"

namespace sluice::comm {
namespace {

using std::chrono::milliseconds;
using testing::Each;

constexpr milliseconds kLongest{20000};

DoorNote note_of(int processes) {
  return {.invitation = {"127.0.0.1 4711", "a token"},
          .settings = {{"train.lr", "0.1"}},
          .data = {{"the number of training samples", "76"}},
          .processes = processes};
}

std::optional<DoorNote> found_by(const World& world, int processes) {
  std::optional<DoorNote> note;
  (void)OwnLimit(kLongest).retry(milliseconds(10), [&] {
    note = find_door(world);
    return note && note->processes == processes;
  });
  return note;
}

TEST(DoorNote, IsItselfAgainAsText) {
  const auto note = DoorNote::from_text(note_of(3).to_text());
  ASSERT_TRUE(note);
  EXPECT_EQ(note->invitation.address, "127.0.0.1 4711");
  EXPECT_EQ(note->invitation.token, "a token");
  EXPECT_EQ(note->settings, note_of(3).settings);
  EXPECT_EQ(note->data, note_of(3).data);
  EXPECT_EQ(note->processes, 3);
  for (const char* text : {"", "{", "[]", "{}", R"({"address":1})"}) EXPECT_FALSE(DoorNote::from_text(text)) << text;
}

TEST(Door, IsFoundAtTheAddressWhereTheRunStarted) {
  const World world = test::world_of(1, 2, test::free_port());
  EXPECT_FALSE(find_door(world));
  Door door(world, "127.0.0.1");
  EXPECT_FALSE(find_door(world)) << "without a note";
  door.renew(note_of(3), /*leads=*/false);
  EXPECT_TRUE(found_by(world, 3));
  door.renew(note_of(4), /*leads=*/true);
  EXPECT_TRUE(found_by(world, 4)) << "a newer note";
}

TEST(Door, IsFoundByTheFileOfTheLeader) {
  const sluice::test::TempDir dir;
  World world = test::world_of(1, 2, 0);
  world.meeting_file = dir / "meeting";
  {
    Door leader(world, "127.0.0.1"), other(world, "127.0.0.1");
    other.renew(note_of(2), /*leads=*/false);
    leader.renew(note_of(3), /*leads=*/true);
    EXPECT_TRUE(found_by(world, 3));
    leader.renew(note_of(2), /*leads=*/false);
    other.renew(note_of(4), /*leads=*/true);
    EXPECT_TRUE(found_by(world, 4)) << "of the next leader";
  }
  EXPECT_FALSE(std::filesystem::exists(world.meeting_file));
}

// A machine that starts again: its ranks wait for those of the run, which has gone on elsewhere.
TEST(Door, TheLeaderTellsProcessesThatWaitAtTheMeetingPoint) {
  const int port = test::free_port();
  std::optional<Door> door;
  const auto errors = test::run_ranks(3, [&](int rank) {
    if (rank == 2) {
      OwnLimit limit(kLongest);
      EXPECT_EQ(find_listener("127.0.0.1", port, limit).address, "127.0.0.1");  // rank 0 is there first
      door.emplace(test::world_of(2, 3, port), "127.0.0.1");
      return door->renew(note_of(3), /*leads=*/true);
    }
    const Processes processes(test::world_of(rank, 3, port), {}, {.connect = kLongest, .operation = kLongest});
    ASSERT_TRUE(processes.door()) << rank;
    EXPECT_EQ(DoorNote::from_text(*processes.door())->processes, 3);
  });
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace sluice::comm
