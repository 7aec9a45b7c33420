"""Ports of tests and benchmarks."""

import contextlib
import pathlib
import random
import socket


def free_port():
    """A port on which nobody listens, below those that the kernel gives to connections, which might take it meanwhile."""
    lowest_of_connections = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    while True:
        port = random.SystemRandom().randrange(lowest_of_connections // 2, lowest_of_connections)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
