#!/usr/bin/env python3
"""scripts/experiments/ranks.py: variables, launchers and ports of the processes of a run."""

import os
import pathlib
import socket
import sys
import tempfile
import unittest
import unittest.mock

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(REPOSITORY / folder) for folder in ("scripts", "tests/support", "bench")]

import hosts  # noqa: E402
import sides  # noqa: E402
import slurm  # noqa: E402
import sluice_cli as cli  # noqa: E402
from experiments import namespaces, ranks, runs  # noqa: E402

KEPT = {"HOME": "/root", "GOMP_SPINCOUNT": "3000", "SLUICE_KILL_AT": "start", "GLOO_SOCKET_IFNAME": "lo"}
OF_LAUNCHERS = {
    "RANK": "7", "WORLD_SIZE": "9", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "far", "MASTER_PORT": "1",
    "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "3", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3",
    "MV2_COMM_WORLD_RANK": "1", "PALS_RANKID": "1", "PMI_RANK": "1", "PMIX_RANK": "1", "MPI_LOCALRANKID": "1",
    "TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_USE_AGENT_STORE": "True"}


def of_rank(rank, size, port, local_rank, local_size, address="127.0.0.1"):
    return {**KEPT, "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": str(local_size),
            "MASTER_ADDR": address, "MASTER_PORT": str(port)}


class RankEnvironmentTest(unittest.TestCase):
    """In the environment of a task of several launchers at once."""

    def setUp(self):
        self.enterContext(unittest.mock.patch.dict(os.environ, KEPT | OF_LAUNCHERS, clear=True))

    def test_what_a_launcher_has_left_is_gone(self):
        self.assertEqual(ranks.environment_without_launchers(), KEPT)
        self.assertEqual(ranks.rank_environment(1, 2, 5000), of_rank(1, 2, 5000, 1, 2))
        self.assertEqual(ranks.rank_environment(2, 3, 5000, address="10.0.0.1", local=(0, 1)), of_rank(2, 3, 5000, 0, 1, "10.0.0.1"))

    def test_everybody_starts_processes_by_it(self):
        self.assertIs(cli.rank_environment, ranks.rank_environment)
        for network in (namespaces.Namespaces, hosts.Hosts):
            self.assertEqual(network("1gbit").environment(1), of_rank(1, 2, 29500, 0, 1, "10.213.7.1"))
        planned = runs.Planned(name="a", kind="a", sets={}, processes=2)
        run = runs.Run(planned, pathlib.Path("a"))
        self.assertEqual(run._environment(1), of_rank(1, 2, run.port, 1, 2))
        one, two = sides.environments(2)
        self.assertEqual([one, two], [of_rank(rank, 2, one["MASTER_PORT"], rank, 2) for rank in range(2)])

    def test_who_is_no_rank_is_told_none(self):
        run = runs.Run(runs.Planned(name="a", kind="a", sets={}), pathlib.Path("a"))
        self.assertEqual(run._environment(0), KEPT)
        self.assertEqual(sides.environments(1, spin="7"), [KEPT | {"GOMP_SPINCOUNT": "7"}])
        self.assertEqual(slurm.Cluster("a").environment, KEPT | {"SLURM_CONF": "a/slurm.conf"})
        with unittest.mock.patch.object(cli, "BINARY", "env"):
            said = cli.must_run().stdout.splitlines()
        self.assertEqual(dict(line.split("=", 1) for line in said), KEPT)


class SlurmTest(unittest.TestCase):
    def test_a_daemon_that_fails_is_quoted(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        program = folder / "slurmd"
        program.write_text(f"#!/bin/sh\necho no plugin >&2\necho no cgroup >>'{folder}/slurmd.log'\nexit 1\n")
        program.chmod(0o755)
        with unittest.mock.patch.object(slurm, "find", lambda _: str(program)), self.assertRaises(AssertionError) as failed:
            slurm.Cluster(folder).daemon("slurmd")
        self.assertEqual(str(failed.exception), "slurmd ended with 1: no plugin\nno cgroup\n")


class FreePortTest(unittest.TestCase):
    def of_connections(self, low):
        return unittest.mock.patch.object(pathlib.Path, "read_text", lambda *_: f"{low}\t60999\n")

    def test_no_connection_is_given_it(self):
        with self.of_connections(32768):
            self.assertEqual(ranks.ports_to_choose(), range(16384, 32768))
            self.assertIn(ranks.free_port(), range(16384, 32768))

    def test_where_connections_may_have_all_ports_it_is_any(self):
        with self.of_connections(1024):
            self.assertEqual(ranks.ports_to_choose(), range(1024, 65536))

    def test_one_where_somebody_listens_is_left_alone(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            taken, free = listener.getsockname()[1], ranks.free_port()
            with unittest.mock.patch.object(ranks.random.SystemRandom, "choice", side_effect=[taken, taken, free]):
                self.assertEqual(ranks.free_port(), free)


if __name__ == "__main__":
    unittest.main()
