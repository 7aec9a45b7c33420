// Processes that connect, agree and add tensors up, and failures of the start. Threads stand in for processes.
#include "comm/processes.h"
#include "comm/clock_offset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "comm/compare.h"
#include "comm/machine_cores.h"
#include "comm/names.h"
#include "comm/ranks.h"
#include "comm/socket_address.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/host.h"
#include "support/files.h"
#include "support/long_tests.h"
#include "support/paused_process.h"

namespace sluice::comm {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr TimeLimits limits_of(milliseconds limit) { return {limit, limit}; }
constexpr TimeLimits kLimit = limits_of(milliseconds(20000));

using test::free_port;
using test::run_ranks;
using test::world_of;

// A meeting file of an earlier run on this machine.
std::string stale_meeting(int port) {
  return concat(R"({"address":"127.0.0.1","port":)", port, R"(,"run":"of yesterday","machine":")", boot_id(),
                R"(","host":"here"})");
}

// The first test here: it copies this process, which has one thread yet. One rank comes after 1 s of the 1.5 s that it
// may take, and 2 s in which all were stopped.
TEST(Communicator, APauseOfAllProcessesIsNoLoss) {
  if (!sluice::test::runs_long_tests()) GTEST_SKIP() << "long: it takes 4 s; liveness_process_test has a stop of all";
  const int port = free_port();
  const int code = sluice::test::run_and_pause(milliseconds(700), milliseconds(2000), [&] {
    const auto failures = run_ranks(2, [&](int rank) {
      Processes processes(world_of(rank, 2, port), {},
                          {.connect = milliseconds(20000), .operation = milliseconds(1500)});
      const auto communicator = processes.make_communicator("gradients");
      if (rank == 1) sluice::test::run_for(milliseconds(1000));
      communicator->all_reduce(at::ones({4})).wait();
      communicator->barrier();
    });
    for (const std::string& failure : failures) std::cerr << failure << '\n';
    return failures == std::vector<std::string>(2) ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

TEST(Processes, AddUpAndBroadcastOverSeveralCommunicatorsAtOnce) {
  for (const int size : {2, 3, 4}) {
    const int port = free_port();
    const auto failures = run_ranks(size, [&](int rank) {
      Processes processes(world_of(rank, size, port), {{"train.lr", "0.1"}}, kLimit);
      const auto first = processes.make_communicator("stage 0"), second = processes.make_communicator("stage 1");
      // Different in any two ranks, so that a missing rank changes the sum.
      const at::Tensor a = at::arange(100, at::kDouble) * (rank + 1), b = at::full({7}, 1 << rank, at::kLong);
      const Pending of_b = second->all_reduce(b);
      first->all_reduce(a).wait();
      of_b.wait();
      EXPECT_TRUE(at::equal(a, at::arange(100, at::kDouble) * (size * (size + 1) / 2)));
      EXPECT_TRUE(at::equal(b, at::full({7}, (1 << size) - 1, at::kLong)));
      const at::Tensor c = at::full({5}, rank, at::kFloat);
      first->broadcast(c, size - 1);
      EXPECT_TRUE(at::equal(c, at::full({5}, size - 1, at::kFloat)));
      first->barrier();
    });
    EXPECT_THAT(failures, testing::Each("")) << size;
  }
}

TEST(Processes, WhoHoldsAnotherValueIsNamedInAll) {
  const int port = free_port();
  const auto failures = run_ranks(4, [&](int rank) {
    Processes processes(world_of(rank, 4, port), {}, kLimit);
    const auto communicator = processes.make_communicator("values");
    EXPECT_EQ(find_difference(*communicator, {7, -1, 5}), std::nullopt);
    EXPECT_EQ(find_difference(*communicator, {}), std::nullopt);
    // The second value differs in ranks 1 and 3, the third in rank 2: the first position counts.
    const std::int64_t large = std::int64_t{1} << 62;
    const auto found = find_difference(*communicator, {7, rank % 2 == 1 ? -large : large, rank == 2 ? 1 : 0});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->position, 1);
    EXPECT_THAT(found->ranks, testing::ElementsAre(1, 3));
    EXPECT_EQ(found->describe_ranks(), "ranks 1, 3");
    EXPECT_EQ(broadcast_text(*communicator, rank == 2 ? "from 2" : "", 2), "from 2");
    EXPECT_EQ(broadcast_text(*communicator, rank == 0 ? "" : "not mine", 0), "");
  });
  EXPECT_THAT(failures, testing::Each(""));
}

TEST(Processes, TellEachOtherTheirTextsAndTheirClocks) {
  const int port = free_port();
  const auto failures = run_ranks(3, [&](int rank) {
    Processes processes(world_of(rank, 3, port), {}, kLimit);
    const auto communicator = processes.make_communicator("values");
    for (const int root : {0, 2}) {
      const auto texts = gather_texts(*communicator, std::string(rank * 1000, static_cast<char>('a' + rank)), root);
      if (rank == root) {
        EXPECT_THAT(texts, testing::ElementsAre("", std::string(1000, 'b'), std::string(2000, 'c')));
      } else {
        EXPECT_TRUE(texts.empty());
      }
    }
    EXPECT_EQ(gather_texts(*communicator, "", 1), std::vector<std::string>(rank == 1 ? 3 : 0));
    const ClockOffset clock = measure_clock_offset(*communicator);  // all read one clock
    EXPECT_LE(std::abs(clock.offset), clock.error);
    EXPECT_EQ(clock.error == 0, rank == 0);
    EXPECT_LT(clock.error, 1'000'000'000);
  });
  EXPECT_THAT(failures, testing::Each(""));
}

TEST(Processes, LeaveTextsForEachOtherAndCountThoseOnTheSameCores) {
  const int port = free_port();
  const auto failures = run_ranks(3, [&](int rank) {
    Processes processes(world_of(rank, 3, port), {}, kLimit);
    EXPECT_EQ(processes.world().local_size, 3);
    EXPECT_EQ(processes.world().local_rank, rank);
    EXPECT_DOUBLE_EQ(processes.world().cores, static_cast<double>(cores_of_this_process().cores.size()) / 3);
    if (rank == 1) processes.publish("place", "here");
    EXPECT_EQ(processes.look_up("place"), "here");
    processes.make_communicator("end")->barrier();  // with rank 0 the texts would go
  });
  EXPECT_THAT(failures, testing::Each(""));
}

// Regression: with the scripts of two nodes on one machine, each process took all cores.
TEST(Processes, ShareTheirCoresWhateverTheLauncherSays) {
  const int port = free_port();
  const auto failures = run_ranks(2, [&](int rank) {
    World world = world_of(rank, 2, port);
    world.local_rank = 0;
    world.local_size = 1;
    Processes processes(world, {}, kLimit);
    EXPECT_EQ(processes.world().local_size, 1) << "which devices are whose is the launcher's word";
    EXPECT_EQ(processes.world().local_rank, 0);
    EXPECT_DOUBLE_EQ(processes.world().cores, static_cast<double>(cores_of_this_process().cores.size()) / 2);
    processes.make_communicator("end")->barrier();
  });
  EXPECT_THAT(failures, testing::Each(""));
}

// NCCL's ranks read rank 0's id under a fixed key: that of the first communicator of a name was still there when a
// second one was made. Gloo, which overwrites what it leaves, stands for it: each communicator has keys of its own.
TEST(Processes, TwoCommunicatorsOfOneNameShareNoKeys) {
  const int port = free_port();
  const auto failures = run_ranks(2, [&](int rank) {
    Processes processes(world_of(rank, 2, port), {}, kLimit);
    std::vector<std::shared_ptr<Communicator>> made;
    for (int i = 0; i < 3; ++i) {
      made.push_back(processes.make_communicator("gradients"));
      EXPECT_NE(processes.look_up(concat("gradients/", i, "/0/0")), "") << "what rank 0 has left for Gloo";
      const at::Tensor number = at::full({1}, 1 << rank);
      made.back()->all_reduce(number).wait();
      EXPECT_EQ(number.item<int>(), 3);
    }
    made.front()->barrier();
  });
  EXPECT_THAT(failures, testing::Each(""));
}

// Rank 1's host name does not resolve at first, and its first address has no listener.
TEST(Processes, MeetAtAHostWithSeveralAddresses) {
  test::set_host("rank0.test", {"127.0.0.3", "127.0.0.1"}, /*unknown_for=*/2);
  const int port = free_port();
  const auto failures = run_ranks(2, [&](int rank) {
    World world = world_of(rank, 2, port);
    if (rank == 1) world.address = "rank0.test";
    Processes processes(world, {}, kLimit);
    EXPECT_EQ(processes.world().address, "127.0.0.1");
    processes.make_communicator("values")->barrier();
  });
  EXPECT_THAT(failures, testing::Each(""));
  const auto alone = run_ranks(2, [&](int rank) {
    World world = world_of(rank, 2, port);
    world.address = "rank0.test";
    if (rank == 1) Processes(world, {}, limits_of(milliseconds(500)));
  });
  EXPECT_THAT(alone[1], HasSubstr(concat("rank 0 at rank0.test:", port, " (127.0.0.3, 127.0.0.1) within")));
}

// torchrun's agent keeps one store for all attempts; values of an earlier attempt must not be read.
TEST(Processes, MeetAtALaunchersStoreInEveryAttempt) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.port = 0;
  const c10d::TCPStore agent("127.0.0.1", options);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto failures = run_ranks(2, [&](int rank) {
      World world = world_of(rank, 2, agent.getPort());
      world.is_hosted = true;
      world.attempt = attempt;
      Processes processes(world, {{"train.lr", concat(attempt)}}, kLimit);
      processes.make_communicator("values")->barrier();
    });
    EXPECT_THAT(failures, testing::Each("")) << attempt;
  }
}

World world_by_file(int rank, int size, const std::filesystem::path& file) {
  return {.rank = rank, .size = size, .meeting_file = file};
}

// A killed run leaves a file with a dead address, the address of another program, or that of another run.
TEST(Processes, MeetByAFileWhateverAnEarlierRunHasLeftThere) {
  const sluice::test::TempDir folder;
  const std::filesystem::path file = folder.path() / "meeting";
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.port = 0;
  const c10d::TCPStore other_run("127.0.0.1", options);
  const std::string elsewhere = R"({"address":"127.0.0.1","port":1,"run":"x","machine":"another","host":"far"})";
  for (const std::string& left : {std::string{}, std::string("garbage"), stale_meeting(free_port()),
                                  stale_meeting(other_run.getPort()), elsewhere}) {
    if (!left.empty()) std::ofstream(file) << left;
    const auto failures = run_ranks(3, [&](int rank) {
      if (rank == 0) std::this_thread::sleep_for(milliseconds(700));  // the others have read what was left
      Processes processes(world_by_file(rank, 3, file), {}, kLimit);
      EXPECT_EQ(processes.world().address, "127.0.0.1");
      const at::Tensor sum = at::full({1}, 1 << rank);
      processes.make_communicator("values")->all_reduce(sum).wait();
      EXPECT_EQ(sum.item<int>(), 7);
    });
    EXPECT_THAT(failures, testing::Each("")) << left;
    EXPECT_FALSE(std::filesystem::exists(file)) << "the next run would read it";
  }
}

TEST(Processes, AFileThatLeadsNowhereIsNamed) {
  if (!sluice::test::runs_long_tests()) GTEST_SKIP() << "long: 6 s; app_launchers has a folder that is not there";
  const sluice::test::TempDir folder;
  const std::filesystem::path file = folder.path() / "meeting";
  const auto come = [&](int rank, const std::filesystem::path& by) {
    return run_ranks(1, [&](int) { Processes(world_by_file(rank, 2, by), {}, limits_of(milliseconds(1000))); })[0];
  };
  EXPECT_THAT(come(1, file), AllOf(HasSubstr("5: rank 1 did not find rank 0 by the file"), HasSubstr("within 1 s")));
  EXPECT_THAT(come(0, folder.path() / "none" / "meeting"), HasSubstr("the folder does not exist"));
  EXPECT_THAT(come(0, file), HasSubstr("rank 1 of 2 did not connect"));
  EXPECT_THAT(come(1, folder.path()), HasSubstr("did not find rank 0 by the file")) << "a folder";
  EXPECT_THAT(come(0, folder.path()), HasSubstr("Is a directory; choose a file"));
  EXPECT_FALSE(std::filesystem::exists(file));
  std::ofstream(file) << R"({"address":"127.0.0.1","port":1,"run":"x","machine":"another","host":"far"})";
  EXPECT_THAT(come(1, file), AllOf(HasSubstr("2: rank 0 listens on 127.0.0.1 of far only"), HasSubstr("--if-name")));
}

TEST(Processes, OneAloneNeedsNoAddress) {
  const Processes processes({}, {}, kLimit);
  EXPECT_EQ(processes.size(), 1);
}

TEST(Processes, AMissingRankIsNamedToAllWhoCame) {
  const int port = free_port();
  const auto failures = run_ranks(3, [&](int rank) {
    if (rank == 1) return;
    Processes(world_of(rank, 4, port), {}, limits_of(milliseconds(3000)));
  });
  for (const int rank : {0, 2}) EXPECT_THAT(failures[rank], AllOf(HasSubstr("5: "), HasSubstr("ranks 1, 3 of 4")));
}

TEST(Processes, AKeyThatDiffersIsNamedWithBothValues) {
  const int port = free_port();
  const auto failures = run_ranks(3, [&](int rank) {
    const Agreement agreement{{"train.lr", rank == 2 ? "0.3" : "0.1"}, {"train.seed", "1"}};
    Processes(world_of(rank, 3, port), agreement, limits_of(milliseconds(3000)));
  });
  const auto names_it = HasSubstr("train.lr is 0.3 in rank 2, but 0.1 in rank 0");
  EXPECT_THAT(failures[0], names_it);
  EXPECT_THAT(failures[2], names_it);
  EXPECT_THAT(failures[1], testing::AnyOf(names_it, HasSubstr("cannot reach rank 0")));  // when it comes too late
}

// Rank 2 never connects. Rank 1 connects before the failure, or while rank 0 still reports it.
TEST(Processes, WhatIsWrongWithRank0AloneIsSaidAtOnceAndTheOthersHearIt) {
  const int port = free_port();
  const auto begin = std::chrono::steady_clock::now();
  const auto failures = run_ranks(2, [&](int rank) {
    Processes(world_of(rank, 3, port), {}, kLimit, [&] {
      if (rank == 0) throw ConfigError("data.name = \"nothing\" is not known");
    });
  });
  EXPECT_EQ(failures[0], "2: data.name = \"nothing\" is not known");
  EXPECT_THAT(failures[1],
              AllOf(HasSubstr("5: rank 0 (host "), HasSubstr(") failed: data.name = \"nothing\" is not known")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLimit.connect);
}

TEST(Processes, WhatIsWrongWithAnotherRankAloneIsToldToAllWhoWait) {
  const int port = free_port();
  const auto begin = std::chrono::steady_clock::now();
  const auto failures = run_ranks(4, [&](int rank) {
    if (rank == 3) return;  // never comes
    Processes(world_of(rank, 4, port), {}, kLimit, [&] {
      if (rank == 1) throw DataError("data/x: no such file");
    });
  });
  EXPECT_EQ(failures[1], "3: data/x: no such file");
  for (const int rank : {0, 2})
    EXPECT_THAT(failures[rank], AllOf(HasSubstr("5: rank 1 (host "), HasSubstr("failed: data/x: no such file")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLimit.connect);
}

TEST(Processes, OneThatFailsByItselfWhereNobodyIsSaysWhy) {
  const int port = free_port();
  const auto failures = run_ranks(2, [&](int rank) {
    if (rank == 1) Processes(world_of(rank, 2, port), {}, kLimit, [] { throw DataError("data/x: no such file"); });
  });
  EXPECT_EQ(failures[1], "3: data/x: no such file");
}

TEST(Processes, AWorldSizeThatDiffersIsNamed) {
  const int port = free_port();
  const auto failures = run_ranks(2, [&](int rank) { Processes(world_of(rank, 2 + rank, port), {}, kLimit); });
  for (const std::string& failure : failures)
    EXPECT_THAT(failure, AllOf(HasSubstr("2: "), HasSubstr("rank 1 was started for 3 processes, rank 0 for 2")));
}

TEST(Processes, ARankThatIsThereTwiceIsNamed) {
  const int port = free_port();
  const auto failures =
      run_ranks(3, [&](int thread) { Processes(world_of(std::min(thread, 1), 3, port), {}, kLimit); });
  EXPECT_THAT(failures[0], HasSubstr("two processes were started as rank 1"));
}

TEST(Processes, AnAddressWhereNobodyListensIsNamed) {
  const int port = free_port();
  const auto failures = run_ranks(2, [&](int rank) {
    if (rank == 1) Processes(world_of(rank, 2, port), {}, limits_of(milliseconds(1500)));
  });
  EXPECT_THAT(failures[1], AllOf(HasSubstr("5: rank 1 cannot reach rank 0 at 127.0.0.1:"), HasSubstr("firewalls")));
}

TEST(Processes, APortInUseAndAnAddressThatIsNotOursAreNamed) {
  const int port = free_port();
  const int taken = listen_on("127.0.0.1", port);
  const auto in_use = run_ranks(1, [&](int) { Processes(world_of(0, 2, port), {}, kLimit); });
  EXPECT_THAT(in_use[0], AllOf(HasSubstr("2: port "), HasSubstr("is in use")));
  ::close(taken);
  World elsewhere = world_of(0, 2, port);
  elsewhere.address = "192.0.2.1";  // for documentation: nobody has it
  const auto foreign = run_ranks(1, [&](int) { Processes(elsewhere, {}, kLimit); });
  EXPECT_THAT(foreign[0], HasSubstr("192.0.2.1 is not an address of this machine"));
  elsewhere.address = "no-such-host.invalid";
  elsewhere.address_settings.host = "--init";
  const auto unknown = run_ranks(1, [&](int) { Processes(elsewhere, {}, limits_of(milliseconds(500))); });
  EXPECT_THAT(unknown[0], AllOf(HasSubstr("2: cannot resolve the host name 'no-such-host.invalid' ("),
                                HasSubstr("within 0.5 s; check --init")));
}

TEST(Communicator, APeerThatDoesNotComeInTimeIsAPeerError) {
  const int port = free_port();
  std::promise<void> has_given_up;
  const auto failures = run_ranks(2, [&](int rank) {
    Processes processes(world_of(rank, 2, port), {}, {.connect = milliseconds(20000), .operation = milliseconds(1000)});
    const auto communicator = processes.make_communicator("gradients");
    if (rank == 1) return has_given_up.get_future().wait();
    try {
      communicator->all_reduce(at::ones({4})).wait();
    } catch (const PeerError&) {
      has_given_up.set_value();  // the other one's end is that of the operation
      throw;
    }
  });
  EXPECT_EQ(failures[0], "5: the all-reduce of gradients failed: the other processes did not join within 1 s");
}

TEST(Communicator, APeerThatLeavesIsAPeerError) {
  const int port = free_port();
  const auto failures = run_ranks(2, [&](int rank) {
    Processes processes(world_of(rank, 2, port), {}, limits_of(milliseconds(3000)));
    const auto communicator = processes.make_communicator("gradients");
    if (rank == 1) return;
    communicator->all_reduce(at::ones({1 << 20})).wait();
  });
  EXPECT_THAT(failures[0], HasSubstr("5: the all-reduce of gradients failed"));
}

}  // namespace
}  // namespace sluice::comm
