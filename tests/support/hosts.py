"""Hosts with a slow network between them and no disk in common: network namespaces stand in for them."""

import os
import shutil
import subprocess

import sluice_cli as cli

SKIPPED = 77  # exit status of a test that cannot run here


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts:
    """Two namespaces with a cable between them, or more at a switch, and a limit on what each sends ("100mbit")."""

    def __init__(self, rate, count=2):
        self.rate = rate
        self.names = [f"sluice-{os.getpid()}-{i}" for i in range(count)]
        self.switch = f"sluice-{os.getpid()}-switch" if count > 2 else None
        self.cables = [f"slc{os.getpid() % 100000}-{i}" for i in range(count)]
        self.addresses = [f"10.213.7.{i + 1}" for i in range(count)]

    def connect(self):
        if self.switch is None:
            ip("link", "add", self.cables[0], "netns", self.names[0], "type", "veth",
               "peer", "name", self.cables[1], "netns", self.names[1])
            return
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for i, name in enumerate(self.names):
            ip("link", "add", self.cables[i], "netns", name, "type", "veth", "peer", "name", f"port{i}", "netns", self.switch)
            ip("-n", self.switch, "link", "set", f"port{i}", "master", "bridge", "up")

    def __enter__(self):
        for name in self.names:
            ip("netns", "add", name)
        self.connect()
        for i, name in enumerate(self.names):
            ip("-n", name, "addr", "add", f"{self.addresses[i]}/24", "dev", self.cables[i])
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", self.cables[i], "up")
            self.run_in(i, "tc", "qdisc", "add", "dev", self.cables[i], "root", "tbf", "rate", self.rate, "burst", "128kb",
                        "latency", "50ms")
        return self

    def __exit__(self, *_):
        for name in [*self.names, *([self.switch] if self.switch else [])]:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def run_in(self, i, *words):
        return subprocess.run(["ip", "netns", "exec", self.names[i], *words], check=True, capture_output=True, text=True).stdout

    def sent_bytes(self, i):
        return int(self.run_in(i, "cat", f"/sys/class/net/{self.cables[i]}/statistics/tx_bytes"))

    def cut(self):
        ip("-n", self.names[0], "link", "set", self.cables[0], "down")

    def start(self, i, *arguments, cwd):
        return subprocess.Popen(self.command(i, cli.BINARY, *arguments), cwd=cwd, env=self.environment(i),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def command(self, i, *words):
        return ["ip", "netns", "exec", self.names[i], *map(str, words)]

    def environment(self, i):
        return {**os.environ, "RANK": str(i), "WORLD_SIZE": str(len(self.names)), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": self.addresses[0], "MASTER_PORT": "29500"}


def missing():
    """Why there can be no hosts here, or nothing."""
    if os.geteuid() != 0:
        return "not root"
    for program in ("ip", "tc", "ss"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    try:
        with Hosts("100mbit"):
            return ""
    except subprocess.CalledProcessError as error:
        return f"no namespaces here ({error.stderr.strip()})"
