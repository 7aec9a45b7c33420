"""Network namespaces of this machine as hosts with a slow network. Needs root, ip and tc."""

import itertools
import os
import shutil
import subprocess

from .ranks import rank_environment


def run(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def ip(*words):
    run("ip", *words)


numbers = itertools.count()  # so that one process may have several networks at once


class Namespaces:
    """Two connected namespaces, or more at a switch, with a limit on the rate of each ("100mbit")."""

    def __init__(self, rate, count=2):
        self.rate = rate
        number = next(numbers)
        self.names = [f"sluice-{os.getpid()}-{number}-{i}" for i in range(count)]
        self.switch = f"sluice-{os.getpid()}-{number}-switch" if count > 2 else None
        self.cables = [f"slc{os.getpid() % 100000}-{number}-{i}" for i in range(count)]  # at most 15 letters
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
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        for name in self.names:
            ip("netns", "add", name)
        self.connect()
        for i, name in enumerate(self.names):
            ip("-n", name, "addr", "add", f"{self.addresses[i]}/24", "dev", self.cables[i])
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", self.cables[i], "up")
            run(*self.command(i, "tc", "qdisc", "add", "dev", self.cables[i], "root", "tbf", "rate", self.rate, "burst", "128kb",
                        "latency", "50ms"))

    def __exit__(self, *_):
        for name in [*self.names, *([self.switch] if self.switch else [])]:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def command(self, i, *words):
        return ["ip", "netns", "exec", self.names[i], *map(str, words)]

    def environment(self, i, port=29500):
        return rank_environment(i, len(self.names), port, address=self.addresses[0], local=(0, 1))


def missing():
    """Why namespaces cannot be made here, or an empty string."""
    if os.geteuid() != 0:
        return "not root"
    for program in ("ip", "tc", "ss"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    try:
        with Namespaces("100mbit"):
            return ""
    except subprocess.CalledProcessError as error:
        return f"no namespaces here ({error.stderr.strip()})"
