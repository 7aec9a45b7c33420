"""Hosts with a slow network between them and no disk in common, and our processes on them."""

import subprocess

import sluice_cli as cli
from experiments.namespaces import Namespaces, ip, missing, run  # noqa: F401  (sluice_cli says where they are)

SKIPPED = 77  # exit status of a test that cannot run here


class Hosts(Namespaces):
    def run_in(self, i, *words):
        return run(*self.command(i, *words))

    def sent_bytes(self, i):
        return int(self.run_in(i, "cat", f"/sys/class/net/{self.cables[i]}/statistics/tx_bytes"))

    def cut(self):
        ip("-n", self.names[0], "link", "set", self.cables[0], "down")

    def limit(self, i, rate):
        self.run_in(i, "tc", "qdisc", "change", "dev", self.cables[i], "root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms")

    def start(self, i, *arguments, cwd=None, environment=None):
        return subprocess.Popen(self.command(i, cli.BINARY, *arguments), cwd=cwd, env=self.environment(i) | (environment or {}),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
