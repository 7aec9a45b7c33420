// A server that is killed and begun again from a copy of its state and its log: beside one that was never killed, bit
// for bit, for every policy.
#include "ps/net/log_recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include <ATen/ATen.h>

#include "core/error.h"
#include "ps/net/log_files.h"
#include "ps/net/logged_run.h"
#include "support/files.h"

namespace sluice::ps::test {
namespace {

using sluice::test::error_of;
using sluice::test::TempDir;
using testing::HasSubstr;

void expect_same_bits(const Tensors& ours, const Tensors& theirs) { EXPECT_EQ(digest_of(ours), digest_of(theirs)); }

void expect_same_state(const ServerState& ours, const ServerState& theirs) {
  EXPECT_EQ(ours.progress.version, theirs.progress.version);
  EXPECT_EQ(ours.progress.examples, theirs.progress.examples);
  expect_same_bits(ours.weights, theirs.weights);
  ASSERT_EQ(ours.optimizer.size(), theirs.optimizer.size());
  for (std::size_t i = 0; i < ours.optimizer.size(); ++i)
    expect_same_bits({ours.optimizer[i].second, at::empty({0})}, {theirs.optimizer[i].second, at::empty({0})});
}

void expect_same_pushes(const std::vector<CommittedPush>& ours, std::vector<CommittedPush> theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (const CommittedPush& push : ours) {
    const auto found =
        std::ranges::find(theirs, push.push.record, [](const CommittedPush& other) { return other.push.record; });
    ASSERT_NE(found, theirs.end());
    EXPECT_EQ(push.push.scores, found->push.scores);
    EXPECT_EQ(push.push.times, found->push.times);
    EXPECT_EQ(push.epoch, found->epoch);
    EXPECT_EQ(push.samples, found->samples);
    expect_same_bits(push.push.tensors, found->push.tensors);
  }
}

// One more worker comes when all others are gone, and its push makes the update that the waiting ones are in, too.
void push_of_a_last_worker(Server& server) {
  const WorkerId last{kWorkers};
  constexpr Nanoseconds kLate = 1'000'000'000;
  server.open(kLate);
  PushRecord record{.worker = last,
                    .incarnation = server.join(last, kLate),
                    .sequence = 1,
                    .examples = 2,
                    .targets = 2,
                    .local_steps = 1,
                    .payload = server.policy().payload};
  record.base_version = server.begin(last);
  std::mt19937 random(77);
  ASSERT_EQ(server.push(record, random_tensors(server.layout(), random), kLate), PushAnswer::kCommitted);
  ASSERT_EQ(server.advance(2 * kLate).size(), 1U);
}

class LogRecoveryTest : public testing::TestWithParam<Case> {};

TEST_P(LogRecoveryTest, AServerThatIsBegunAgainIsTheOneThatWasNeverKilled) {
  for (const unsigned seed : {1U, 2U}) {
    const TempDir dir;
    LoggedRun run(GetParam(), dir.path(), seed);
    run.run(250);
    ASSERT_GE(run.server().progress().version, 2 * kKeptEvery);
    std::vector<Server> begun_again;
    const std::int64_t last = run.kept.rbegin()->first;
    for (const std::int64_t version : std::set<std::int64_t>{0, kKeptEvery * (last / kKeptEvery / 2), last}) {
      const LoggedRun::Kept& kept = run.kept.at(version);
      Server server = server_of(GetParam(), version > 0 ? &kept.state : nullptr);
      data::Ledger ledger(kLoggedData, kept.ledger);
      const LogRecovery recovery({.folder = dir.path(), .agreement = {{"key", "value"}}}, version);
      EXPECT_EQ(recovery.updates(), run.server().progress().version - version);
      std::vector<NetworkUpdate> updates;
      const std::vector<CommittedPush> waiting =
          recovery.into({.server = server, .ledger = ledger, .on_update = [&](NetworkUpdate update) {
                           updates.push_back(std::move(update));
                         }});
      expect_same_state(server.state(), run.server().state());
      expect_same_pushes(waiting, run.waiting());
      EXPECT_EQ(std::ssize(updates), recovery.updates());
      EXPECT_EQ(std::ssize(waiting), recovery.waiting());
      for (const CommittedPush& push : waiting) {
        ASSERT_TRUE(ledger.lease_again(push.epoch, push.samples));
        server.restore_push(push.push.record, push.push.tensors.clone(), 0);
      }
      for (std::int64_t epoch = 0; epoch <= run.ledger().epochs_over() + 2; ++epoch) {
        EXPECT_EQ(ledger.counts(epoch).pushed, run.ledger().counts(epoch).pushed) << epoch;
        EXPECT_EQ(ledger.counts(epoch).waiting + ledger.counts(epoch).leased,
                  run.ledger().counts(epoch).waiting + run.ledger().counts(epoch).leased);
      }
      begun_again.push_back(std::move(server));
    }
    run.leave();
    push_of_a_last_worker(run.server());
    for (Server& server : begun_again) {
      push_of_a_last_worker(server);
      expect_same_state(server.state(), run.server().state());
    }
  }
}

TEST_P(LogRecoveryTest, AnEndThatIsCutOffAnywhereLeavesTheWeightsOfThatUpdate) {
  const TempDir dir;
  LoggedRun run(GetParam(), dir.path(), 4);
  run.run(150);
  while (run.server().progress().version % kKeptEvery != kKeptEvery - 1) run.run(1);  // many in the last file
  const std::int64_t last = run.kept.rbegin()->first;
  const auto file = log_file(dir.path(), last);
  const std::string whole = sluice::test::slurp(file);
  std::mt19937 random(1);
  std::set<std::int64_t> reached;
  for (int cut = 0; cut < 6; ++cut) {
    sluice::test::spill(file, std::string_view(whole).substr(0, whole.size() - random() % (whole.size() / 2)));
    const LoggedRun::Kept& kept = run.kept.begin()->second;
    Server server = server_of(GetParam());
    data::Ledger ledger(kLoggedData, kept.ledger);
    (void)LogRecovery({.folder = dir.path(), .agreement = {{"key", "value"}}}, 0)
        .into({.server = server, .ledger = ledger});
    ASSERT_GE(server.progress().version, last);
    EXPECT_EQ(digest_of(server.weights().tensors), run.digests.at(server.progress().version));
    reached.insert(server.progress().version);
  }
  EXPECT_GT(reached.size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Policies, LogRecoveryTest,
                         testing::Values(Case{"bsp", 1, at::kDouble}, Case{"bsp", 3, at::kFloat},
                                         Case{"asp", 2, at::kFloat}, Case{"asp", 1, at::kDouble},
                                         Case{"ssp", 3, at::kDouble}, Case{"quorum", 2, at::kDouble},
                                         Case{"quorum", 1, at::kFloat}, Case{"local_sgd", 2, at::kFloat},
                                         Case{"dual_batch", 2, at::kDouble}, Case{"diloco", 1, at::kDouble}),
                         [](const auto& info) {
                           return info.param.policy + "_" + std::to_string(info.param.shards) +
                                  (info.param.dtype == at::kFloat ? "_fp32" : "_fp64");
                         });

// --- What a log does not fit.

class PushLogRefusals : public testing::Test {
 protected:
  void SetUp() override { run_.run(150); }
  std::vector<CommittedPush> recovery(std::int64_t version, const Case& with, const comm::Agreement& agreement) {
    Server server = server_of(with);
    data::Ledger ledger(kLoggedData);
    return LogRecovery({.folder = dir_.path(), .agreement = agreement}, version)
        .into({.server = server, .ledger = ledger});
  }

  const TempDir dir_;
  const Case case_{"asp", 2, at::kDouble};
  const comm::Agreement agreement_{{"key", "value"}};
  LoggedRun run_{case_, dir_.path(), 9};
};

TEST_F(PushLogRefusals, AnotherConfigurationIsRefusedBeforeAnythingIsDone) {
  const auto text = error_of<ConfigError>([&] { return recovery(0, case_, {{"key", "other"}}); });
  EXPECT_THAT(text, HasSubstr("key is other now, but was value"));
  EXPECT_THAT(text, HasSubstr("name a checkpoint with --resume"));
  EXPECT_THAT(error_of<ConfigError>([&] { return recovery(0, case_, {}); }), HasSubstr("key is not set now"));
}

TEST_F(PushLogRefusals, AnotherModelOrOtherWeightsAreRefused) {
  EXPECT_THAT(error_of<ConfigError>([&] {
                return recovery(0, {"asp", 3, at::kDouble}, agreement_);
              }),
              HasSubstr("is of another model or number of shards"));
  ServerState other = server_of(case_).state();
  other.weights.shards[0] = other.weights.shards[0] + 1e-12;
  Server server = server_of(case_, &other);
  data::Ledger ledger(kLoggedData);
  const LogRecovery recovery({.folder = dir_.path(), .agreement = agreement_}, 0);
  EXPECT_THAT(error_of<CheckpointError>([&] { return recovery.into({.server = server, .ledger = ledger}); }),
              HasSubstr("continues from other weights"));
}

TEST_F(PushLogRefusals, AGapIsRefusedAndWhatIsOlderIsToldApart) {
  EXPECT_THAT(error_of<CheckpointError>([&] { return recovery(3, case_, agreement_); }),
              HasSubstr("begins after update 7, and does not continue from update 3"));
  EXPECT_TRUE(LogRecovery({.folder = dir_.path(), .agreement = agreement_}, 100'000).is_outdated());
  EXPECT_FALSE(LogRecovery({.folder = dir_.path() / "none", .agreement = agreement_}, 0).is_outdated());
  std::filesystem::remove(log_file(dir_.path(), kKeptEvery));
  EXPECT_THAT(error_of<CheckpointError>([&] { return recovery(0, case_, agreement_); }),
              HasSubstr("does not continue where the file before it ends"));
}

TEST_F(PushLogRefusals, ADamagedFileIsRefusedBeforeAnythingIsDone) {
  const auto file = log_file(dir_.path(), 0);
  std::string bytes = sluice::test::slurp(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  sluice::test::spill(file, bytes);
  const auto text = error_of<CheckpointError>(
      [&] { return LogRecovery({.folder = dir_.path(), .agreement = agreement_}, 0).updates(); });
  EXPECT_THAT(text, HasSubstr("is damaged at byte"));
  EXPECT_THAT(text, HasSubstr("remove " + dir_.path().string()));
}

TEST_F(PushLogRefusals, FilesAreRemovedByTheirVersions) {
  std::filesystem::copy_file(log_file(dir_.path(), 0), dir_ / "updates-x.log");
  const std::vector<std::int64_t> all = logged_versions(dir_.path());
  ASSERT_GT(all.size(), 3U);
  remove_logs(dir_.path(), 0, all[2]);
  EXPECT_EQ(logged_versions(dir_.path()), (std::vector<std::int64_t>(all.begin() + 2, all.end())));
  remove_logs(dir_.path(), all[3], 1'000'000);
  EXPECT_EQ(logged_versions(dir_.path()), std::vector<std::int64_t>{all[2]});
  remove_logs(dir_.path(), 0, 1'000'000);
  EXPECT_THAT(sluice::test::names_in(dir_.path()), testing::ElementsAre("updates-x.log"));
}

TEST_F(PushLogRefusals, WhoGoesBackTwiceKeepsWhatItLeftBothTimes) {
  const std::vector<std::int64_t> all = logged_versions(dir_.path());
  ASSERT_GT(all.size(), 3U);
  const std::string first = sluice::test::slurp(log_file(dir_.path(), all.back()));
  set_logs_aside(dir_.path(), all[1], "the run goes back");
  EXPECT_EQ(logged_versions(dir_.path()), std::vector<std::int64_t>{all[0]});
  sluice::test::spill(log_file(dir_.path(), all.back()), "another course");
  set_logs_aside(dir_.path(), all[1], "the run goes back again");
  EXPECT_EQ(logged_versions(dir_.path()), std::vector<std::int64_t>{all[0]});
  const std::string aside = log_file(dir_.path(), all.back()).string() + ".replaced";
  EXPECT_EQ(sluice::test::slurp(aside), first);
  EXPECT_EQ(sluice::test::slurp(aside + "-2"), "another course");
}

}  // namespace
}  // namespace sluice::ps::test
