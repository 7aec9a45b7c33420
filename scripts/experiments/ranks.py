"""The processes of one run: the variables that tell each its rank, as torchrun sets them, and a port on which they meet.
Needs the standard library alone, and nothing of an experiment: tests and benchmarks start their processes by it too."""

import contextlib
import os
import pathlib
import random
import re
import socket

# Variables of other launchers; the program rejects contradictory ones.
LAUNCHER_VARIABLES = r"SLURM_|OMPI_|MV2_|PALS_|PMIX?_|MPI_LOCAL|TORCHELASTIC_|MASTER_|(LOCAL_)?(RANK|WORLD_SIZE)$"
OTHER_LAUNCHERS = re.compile(LAUNCHER_VARIABLES)
HIGHEST_PORT = 65535
LOWEST_UNPRIVILEGED_PORT = 1024


def environment_without_launchers():
    """This process's variables, without those that a launcher (srun, mpirun, torchrun) set."""
    return {name: value for name, value in os.environ.items() if not OTHER_LAUNCHERS.match(name)}


def rank_environment(rank, size, port, address="127.0.0.1", local=None):
    """All variables of rank `rank` of `size`, whose rank 0 listens on this address and port. local: its rank among the
    processes of its machine, and how many they are; without it all are on this one."""
    local_rank, local_size = local or (rank, size)
    place = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_size,
             "MASTER_ADDR": address, "MASTER_PORT": port}
    return environment_without_launchers() | {name: str(value) for name, value in place.items()}


def ports_to_choose():
    """Ports below those that the kernel gives to connections."""
    lowest_of_connections = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    if lowest_of_connections // 2 < LOWEST_UNPRIVILEGED_PORT:  # too few are left below
        return range(LOWEST_UNPRIVILEGED_PORT, HIGHEST_PORT + 1)
    return range(lowest_of_connections // 2, lowest_of_connections)


def free_port():
    ports = ports_to_choose()
    while True:
        port = random.SystemRandom().choice(ports)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
