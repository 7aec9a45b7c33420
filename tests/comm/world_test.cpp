// Which process this is: from launchers' environments and from options, and what is refused.
#include "comm/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/concat.h"
#include "core/error.h"

namespace sluice::comm {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Environment environment_of(Variables variables) {
  return [variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string refusal(const WorldOptions& options, const Variables& variables) {
  try {
    (void)choose_world(options, environment_of(variables));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(ChooseWorld, WithoutALauncherThereIsOneProcess) {
  const World world = choose_world({}, environment_of({}));
  EXPECT_TRUE(world.is_single());
  EXPECT_EQ(world.rank, 0);
  EXPECT_TRUE(choose_world({}, environment_of({{"SLURM_NTASKS", "4"}})).is_single()) << "an allocation's shell";
  EXPECT_TRUE(choose_world({}, environment_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}})).is_single());
}

TEST(ChooseWorld, ReadsTorchrunSlurmAndOpenMpi) {
  const Variables meeting{{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};
  for (const Variables& launcher :
       {Variables{{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}},
        Variables{{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "1"}},
        Variables{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}}) {
    Variables variables = meeting;
    variables.insert(launcher.begin(), launcher.end());
    const World world = choose_world({}, environment_of(variables));
    EXPECT_EQ(world.rank, 3);
    EXPECT_EQ(world.size, 4);
    EXPECT_EQ(world.local_rank, 1);
    EXPECT_EQ(world.address, "node0");
    EXPECT_EQ(world.port, 29500);
  }
}

TEST(ChooseWorld, ReadsHowManyProcessesAMachineHasAndWhoHostsTheMeeting) {
  const Variables torchrun{{"RANK", "3"},        {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}};
  World world = choose_world({}, environment_of(torchrun));
  EXPECT_EQ(world.local_size, 2);
  EXPECT_FALSE(world.is_hosted);
  Variables elastic = torchrun;
  elastic.insert({{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}});
  world = choose_world({}, environment_of(elastic));
  EXPECT_TRUE(world.is_hosted);
  EXPECT_EQ(world.attempt, 2);
  Variables wrong = torchrun;
  wrong["LOCAL_RANK"] = "2";
  EXPECT_THAT(refusal({}, wrong), HasSubstr("LOCAL_RANK = '2' is not a number from 0 to 1"));
}

TEST(ChooseWorld, SlurmsJobIsAMeetingPlace) {
  const auto place_of = [](const std::string& hosts, const std::string& job) {
    const World world = choose_world(
        {}, environment_of(
                {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_NODELIST", hosts}, {"SLURM_JOB_ID", job}}));
    return concat(world.address, ":", world.port);
  };
  EXPECT_EQ(place_of("node[7-9,12],other", "1234567"), "node7:19567");
  EXPECT_EQ(place_of("node[012,14]", "3"), "node012:15003");
  EXPECT_EQ(place_of("alpha,beta", "10000"), "alpha:15000");
  EXPECT_EQ(place_of("alone", "9999"), "alone:24999");
}

TEST(ChooseWorld, OptionsGoBeforeTheEnvironment) {
  const WorldOptions options{.rank = 1, .world_size = 2, .init = "tcp://10.0.0.1:1234", .interface = "eth1"};
  const World world = choose_world(options, environment_of({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "x"}}));
  EXPECT_EQ(world.rank, 1);
  EXPECT_EQ(world.size, 2);
  EXPECT_EQ(world.address, "10.0.0.1");
  EXPECT_EQ(world.port, 1234);
  EXPECT_EQ(world.interface, "eth1");
  EXPECT_EQ(choose_world({.rank = 0, .world_size = 2, .init = "tcp://[::1]:80"}, environment_of({})).address, "::1");
}

TEST(ChooseWorld, SaysWhatIsMissingOrWrong) {
  EXPECT_THAT(refusal({}, {{"RANK", "0"}}), HasSubstr("RANK is set, but WORLD_SIZE is not"));
  EXPECT_THAT(refusal({}, {{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK = '2' is not a number from 0 to 1"));
  EXPECT_THAT(refusal({}, {{"RANK", "x"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK = 'x'"));
  EXPECT_THAT(refusal({}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(refusal({}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "0"}}),
              HasSubstr("MASTER_PORT = '0'"));
  EXPECT_THAT(refusal({.rank = 0}, {}), HasSubstr("--rank needs --world-size too"));
  EXPECT_THAT(refusal({.world_size = 2}, {}), HasSubstr("--world-size needs --rank too"));
  EXPECT_THAT(refusal({.rank = 0, .world_size = 2, .init = "tcp://host"}, {}), HasSubstr("has no port"));
  EXPECT_THAT(refusal({.rank = 0, .world_size = 2, .init = "tcp://:1"}, {}), HasSubstr("is empty"));
  EXPECT_THAT(refusal({.rank = 0, .world_size = 2, .init = "file://x"}, {}), HasSubstr("tcp://HOST:PORT"));
}

}  // namespace
}  // namespace sluice::comm
