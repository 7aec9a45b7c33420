#include "comm/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <map>
#include <vector>

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

// The world of a process without a terminal, as launchers start processes.
World world_of(const Variables& variables, const WorldOptions& options = {}) {
  return choose_world(options, environment_of(variables), /*on_terminal=*/false);
}

std::string refusal(const WorldOptions& options, const Variables& variables) {
  try {
    (void)world_of(variables, options);
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
        Variables{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "1"}},
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

TEST(ChooseWorld, SlurmsJobIsAMeetingPoint) {
  const auto meeting_point_of = [](const std::string& hosts, const std::string& job) {
    const Variables task{{"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "0"},
                         {"SLURM_NTASKS", "2"},
                         {"SLURM_JOB_NODELIST", hosts},
                         {"SLURM_JOB_ID", job}};
    if (refusal({}, task).find("MASTER_ADDR is not set") != std::string::npos)
      return std::string("MASTER_ADDR is not set");
    const World world = world_of(task);
    return concat(world.address, ":", world.port);
  };
  EXPECT_EQ(meeting_point_of("node[7-9,12],other", "1234567"), "node7:19567");
  EXPECT_EQ(meeting_point_of("node[012,14]", "3"), "node012:15003");
  EXPECT_EQ(meeting_point_of("alpha,beta", "10000"), "alpha:15000");
  EXPECT_EQ(meeting_point_of("alone", "9999"), "alone:24999");
  EXPECT_EQ(meeting_point_of("rack[0-1]_blade[3-4]", "3"), "rack0_blade3:15003");
  EXPECT_EQ(meeting_point_of("a[1,3]b[07-09]-ib,c[1-2]", "3"), "a1b07-ib:15003");
  EXPECT_EQ(meeting_point_of("n[1-2", "3"), "MASTER_ADDR is not set") << "damaged";
}

// A step on nodes 7 and 9 of three, with two tasks on the first and one on the other.
TEST(ChooseWorld, ASmallerStepOfASlurmJobIsWhatCounts) {
  const Variables step{{"SLURM_JOB_ID", "30"},
                       {"SLURM_JOB_NODELIST", "node[1,7,9]"},
                       {"SLURM_NTASKS_PER_NODE", "8"},
                       {"SLURM_STEP_ID", "2"},
                       {"SLURM_STEP_NODELIST", "node[7,9]"},
                       {"SLURM_STEP_NUM_TASKS", "3"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                       {"SLURM_NTASKS", "24"}};
  const std::vector<std::array<std::string, 3>> tasks{{"0", "0", "0"}, {"1", "1", "0"}, {"2", "0", "1"}};
  for (const auto& [rank, local_rank, node] : tasks) {
    Variables task = step;
    task.insert({{"SLURM_PROCID", rank}, {"SLURM_LOCALID", local_rank}, {"SLURM_NODEID", node}});
    const World world = choose_world({}, environment_of(task));
    EXPECT_EQ(world.launcher, "Slurm (srun)");
    EXPECT_EQ(concat(world.rank, " of ", world.size), concat(rank, " of 3"));
    EXPECT_EQ(concat(world.local_rank, " of ", world.local_size), concat(local_rank, " of ", node == "0" ? 2 : 1));
    EXPECT_EQ(concat(world.address, ":", world.port), "node7:15232") << "two steps at once have ports of their own";
  }
  Variables wide = step;
  wide.insert({{"SLURM_PROCID", "6"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "3"}});
  wide["SLURM_STEP_NUM_TASKS"] = "7";
  wide["SLURM_STEP_TASKS_PER_NODE"] = "2(x3),1";
  EXPECT_EQ(choose_world({}, environment_of(wide)).local_size, 1);
  wide["SLURM_NODEID"] = "2";
  EXPECT_EQ(choose_world({}, environment_of(wide)).local_size, 2);
}

// Variables of a batch script of Slurm 22.05, and those that mpirun adds in it.
TEST(ChooseWorld, ABatchScriptOfSlurmIsNoTask) {
  const Variables batch{{"SLURM_JOB_ID", "2"},        {"SLURM_JOB_NODELIST", "vm"}, {"SLURM_LOCALID", "0"},
                        {"SLURM_NODEID", "0"},        {"SLURM_NTASKS", "2"},        {"SLURM_PROCID", "0"},
                        {"SLURM_TASKS_PER_NODE", "2"}};
  const World alone = choose_world({}, environment_of(batch));
  EXPECT_TRUE(alone.is_single());
  EXPECT_EQ(alone.launcher, "");
  EXPECT_THAT(alone.remark, HasSubstr("job has 2 tasks, but this process was not started by srun"));
  Variables by_mpi = batch;
  by_mpi.insert({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "7"}});
  const World world = choose_world({}, environment_of(by_mpi));
  EXPECT_EQ(world.launcher, "Open MPI (mpirun)");
  EXPECT_EQ(world.rank, 1);
  EXPECT_EQ(world.address, "vm");
  EXPECT_EQ(world.remark, "");
}

TEST(ChooseWorld, OpenMpiOnOneMachineNeedsNoAddress) {
  Variables mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                {"OMPI_COMM_WORLD_SIZE", "2"},
                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                {"PMIX_NAMESPACE", "1023541249"}};
  const World world = choose_world({}, environment_of(mpi));
  EXPECT_EQ(world.address, "127.0.0.1");
  EXPECT_GE(world.port, 15000);
  EXPECT_LT(world.port, 25000);
  mpi["PMIX_NAMESPACE"] = "1023541250";
  EXPECT_NE(choose_world({}, environment_of(mpi)).port, world.port);
  mpi["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  mpi["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  EXPECT_THAT(refusal({}, mpi), HasSubstr("MASTER_ADDR is not set")) << "on two machines";
}

// Variables of mpiexec.hydra of MPICH 4.0.2; Intel MPI has the same. The others follow the documentation.
TEST(ChooseWorld, ReadsTheOtherLaunchersOfMpi) {
  const Variables hydra{{"PMI_FD", "8"},          {"PMI_RANK", "1"},        {"PMI_SIZE", "2"},
                        {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}, {"MASTER_PORT", "29500"}};
  World world = world_of(hydra);
  EXPECT_EQ(world.launcher, "Hydra (mpiexec of MPICH or Intel MPI)");
  EXPECT_EQ(concat(world.rank, " of ", world.size), "1 of 2");
  EXPECT_EQ(concat(world.local_rank, " of ", world.local_size), "1 of 2");
  EXPECT_EQ(world.address, "127.0.0.1") << "all are on this machine";
  Variables wide = hydra;
  wide["PMI_SIZE"] = "4";
  EXPECT_THAT(refusal({}, wide), HasSubstr("MASTER_ADDR is not set"));

  world = world_of({{"MV2_COMM_WORLD_RANK", "3"},
                    {"MV2_COMM_WORLD_SIZE", "4"},
                    {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                    {"MV2_COMM_WORLD_LOCAL_SIZE", "2"},
                    {"MASTER_ADDR", "a"},
                    {"MASTER_PORT", "1"}});
  EXPECT_EQ(world.launcher, "MVAPICH (mpirun_rsh)");
  EXPECT_EQ(concat(world.rank, " of ", world.size, ", ", world.local_rank, " of ", world.local_size), "3 of 4, 1 of 2");

  const Variables pals{{"PALS_RANKID", "3"}, {"PALS_LOCAL_RANKID", "1"}, {"PMI_RANK", "3"},
                       {"PMI_SIZE", "4"},    {"MASTER_ADDR", "a"},       {"MASTER_PORT", "1"}};
  world = world_of(pals);
  EXPECT_EQ(world.launcher, "PALS (mpiexec)");
  EXPECT_EQ(concat(world.rank, " of ", world.size, ", ", world.local_rank, " of ", world.local_size), "3 of 4, 1 of 0");
  Variables other = pals;
  other.insert({{"RANK", "2"}, {"WORLD_SIZE", "4"}});
  EXPECT_THAT(refusal({}, other), HasSubstr("but PALS (mpiexec) gives rank 3 of 4 (PALS_RANKID, PMI_SIZE)"));
}

// MVAPICH's launchers also set the variables of PMI, which Hydra reads.
TEST(ChooseWorld, MvapichAndPmiVariablesHaveToAgree) {
  Variables both{{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"},
                 {"MASTER_ADDR", "a"},         {"MASTER_PORT", "1"}};
  const World world = world_of(both);
  EXPECT_EQ(concat(world.launcher, ": ", world.rank, " of ", world.size), "MVAPICH (mpirun_rsh): 1 of 2");
  both["PMI_RANK"] = "0";
  EXPECT_THAT(refusal({}, both),
              HasSubstr("two launchers contradict each other: MVAPICH (mpirun_rsh) gives rank 1 of 2 "
                        "(MV2_COMM_WORLD_RANK, MV2_COMM_WORLD_SIZE), but Hydra (mpiexec of MPICH or Intel MPI) gives "
                        "rank 0 of 2 (PMI_RANK, PMI_SIZE)"));
  Variables in_slurm = both;
  in_slurm.insert({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_EQ(world_of(in_slurm).launcher, "MVAPICH (mpirun_rsh)") << "srun has set PMI's";
  Variables nested = both;
  nested.insert({"PMI_ID", "1"});
  EXPECT_EQ(world_of(nested).launcher, "MVAPICH (mpirun_rsh)") << "an outer launcher has set PMI_RANK";
  in_slurm["MV2_COMM_WORLD_RANK"] = "0";
  in_slurm["PMI_RANK"] = "1";
  EXPECT_THAT(refusal({}, in_slurm), HasSubstr("two launchers contradict each other"));
  both.insert({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_EQ(world_of(both).launcher, "Open MPI (mpirun)") << "its daemons are tasks of another launcher";
}

TEST(ChooseWorld, ARankWithoutANumberOfProcessesIsRefused) {
  for (const char* name : {"PMIX_RANK", "PALS_RANKID", "PMI_RANK", "MV2_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK"}) {
    const Variables alone{{name, "0"}};
    EXPECT_THAT(refusal({}, alone), HasSubstr(concat("a launcher started this process as rank 0 (", name, ")")));
    EXPECT_TRUE(world_of(alone, {.rank = 0, .world_size = 1}).is_single());
    Variables known = alone;
    known.insert({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
    EXPECT_TRUE(world_of(known).is_single());
  }
  EXPECT_TRUE(world_of({{"PMI_SIZE", "2"}}).is_single());
}

// Variables of Slurm 22.05 with --mpi=pmi2, and those that mpiexec.hydra adds in a task.
TEST(ChooseWorld, WhatSlurmTellsThePmiLibraryIsSlurms) {
  Variables task{{"SLURM_JOB_ID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"},
                 {"SLURM_NTASKS", "2"}, {"PMI_JOBID", "1.0"},   {"PMI_RANK", "1"},     {"PMI_SIZE", "2"},
                 {"MASTER_ADDR", "a"}};
  World world = world_of(task);
  EXPECT_EQ(world.launcher, "Slurm (srun)");
  EXPECT_EQ(concat(world.rank, " of ", world.size), "1 of 2");
  EXPECT_TRUE(world_of({{"SLURM_JOB_ID", "1"}, {"PMIX_RANK", "0"}}).is_single()) << "a shell of srun --mpi=pmix";
  task.insert({{"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(world_of(task).launcher, "Hydra (mpiexec of MPICH or Intel MPI)");
}

// Variables of Slurm 22.05 in `srun -n 2 --pty bash`, and in a further srun there.
TEST(ChooseWorld, TheShellOfAnInteractiveStepIsNoTask) {
  const Variables step{{"SLURM_JOB_ID", "3"},         {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"},
                       {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "2"},  {"SLURM_PTY_PORT", "46571"},
                       {"SLURM_JOB_NODELIST", "vm"},  {"PMI_RANK", "0"},      {"PMI_SIZE", "2"}};
  const World shell = choose_world({}, environment_of(step), /*on_terminal=*/true);
  EXPECT_TRUE(shell.is_single());
  EXPECT_THAT(shell.remark, HasSubstr("job has 2 tasks, but this process was not started by srun"));
  const World task = world_of(step);
  EXPECT_EQ(concat(task.launcher, ": ", task.rank, " of ", task.size), "Slurm (srun): 0 of 2");
  EXPECT_EQ(task.remark, "");
  const WorldOptions by_hand{.rank = 1, .world_size = 4};
  EXPECT_EQ(choose_world(by_hand, environment_of(step), /*on_terminal=*/true).size, 4);
  // `srun -n 2 --pty sluice train ...`: task 1 has no terminal, and waits for task 0.
  Variables of_task = step;
  of_task["SLURM_TASK_PID"] = std::to_string(::getpid());
  EXPECT_EQ(choose_world({}, environment_of(of_task), /*on_terminal=*/true).size, 2);
  of_task["SLURM_TASK_PID"] = std::to_string(::getppid());
  EXPECT_TRUE(choose_world({}, environment_of(of_task), /*on_terminal=*/true).is_single()) << "in the task's shell";
  // salloc's own shell, where LaunchParameters=use_interactive_step: a step of one task in a job of two.
  Variables of_salloc = step;
  of_salloc["SLURM_STEP_NUM_TASKS"] = of_salloc["PMI_SIZE"] = "1";
  EXPECT_NE(choose_world({}, environment_of(of_salloc), /*on_terminal=*/true).remark, "");
}

TEST(ChooseWorld, LaunchersThatContradictEachOtherAreRefused) {
  const Variables srun{{"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "1"},
                       {"SLURM_STEP_NUM_TASKS", "2"},
                       {"MASTER_ADDR", "a"},
                       {"MASTER_PORT", "29500"}};
  const auto with = [](Variables variables, const Variables& more) {
    for (const auto& [name, value] : more) variables[name] = value;
    return variables;
  };
  const auto by_hand = with(srun, {{"RANK", "0"}, {"WORLD_SIZE", "4"}});
  EXPECT_THAT(refusal({}, by_hand),
              HasSubstr("RANK and WORLD_SIZE gives rank 0 of 4 (RANK, WORLD_SIZE), but Slurm (srun) gives rank 1 of 2 "
                        "(SLURM_PROCID, SLURM_STEP_NUM_TASKS)"));
  EXPECT_THAT(refusal({}, with(srun, {{"RANK", "0"}, {"WORLD_SIZE", "2"}})), HasSubstr("contradict"));
  EXPECT_THAT(refusal({}, with(srun, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})), HasSubstr("contradict"));
  EXPECT_THAT(refusal({.rank = 0, .world_size = 2}, srun), HasSubstr("the command line gives rank 0 of 2 (--rank"));
  EXPECT_THAT(refusal({.rank = 0, .world_size = 2}, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}), HasSubstr("contradict"));
  const Variables mpi{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}};
  EXPECT_THAT(refusal({}, with(mpi, {{"RANK", "0"}, {"WORLD_SIZE", "4"}})),
              HasSubstr("Open MPI (mpirun) gives rank 3"));

  // Launchers that agree, and nested ones.
  const auto assignment = [&](const WorldOptions& options, const Variables& variables) {
    const World world =
        choose_world(options, environment_of(with({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}, variables)));
    return concat(world.launcher, ": ", world.rank, " of ", world.size);
  };
  EXPECT_EQ(assignment({.rank = 1, .world_size = 2}, srun), "the command line: 1 of 2");
  EXPECT_EQ(assignment({}, with(srun, {{"RANK", "1"}, {"WORLD_SIZE", "2"}})), "RANK and WORLD_SIZE: 1 of 2");
  EXPECT_EQ(assignment({}, with(by_hand, {{"TORCHELASTIC_RUN_ID", "x"}})), "torchrun: 0 of 4");
  EXPECT_EQ(assignment({}, with(srun, mpi)), "Open MPI (mpirun): 3 of 4");
  EXPECT_EQ(
      assignment({.rank = 1, .world_size = 3}, with(srun, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}})),
      "the command line: 1 of 3")
      << "a shell by srun";
}

TEST(ChooseWorld, AFileIsAMeetingPoint) {
  const WorldOptions options{.rank = 0, .world_size = 2, .init = "file:///shared/meeting"};
  const World world = choose_world(options, environment_of({}));
  EXPECT_EQ(world.meeting_file, "/shared/meeting");
  EXPECT_EQ(world.address, "");
  EXPECT_THAT(refusal({.rank = 0, .world_size = 2, .init = "file://meeting"}, {}), HasSubstr("three slashes"));
  const Variables two_nodes{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}};
  EXPECT_THAT(refusal({.init = "file:///x"}, two_nodes), HasSubstr("give --if-name NAME as well"));
  EXPECT_EQ(choose_world({.init = "file:///x", .interface = "eth0"}, environment_of(two_nodes)).meeting_file, "/x");
}

TEST(ChooseWorld, OptionsSayWhereAProcessStandsAndMeets) {
  const WorldOptions options{.rank = 1, .world_size = 2, .init = "tcp://10.0.0.1:1234", .interface = "eth1"};
  const World world = choose_world(options, environment_of({{"MASTER_ADDR", "x"}}));
  EXPECT_EQ(world.rank, 1);
  EXPECT_EQ(world.size, 2);
  EXPECT_EQ(world.address, "10.0.0.1");
  EXPECT_EQ(world.port, 1234);
  EXPECT_EQ(world.interface, "eth1");
  EXPECT_EQ(world.address_settings, (AddressSettings{.host = "--init", .port = "port in --init", .number = "--rank"}));
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
  EXPECT_THAT(refusal({.rank = 0, .world_size = 2, .init = "udp://x"}, {}), HasSubstr("tcp://HOST:PORT"));
}

}  // namespace
}  // namespace sluice::comm
