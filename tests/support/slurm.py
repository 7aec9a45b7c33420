"""A Slurm cluster on this machine, for as long as a test needs it: its controller, one node, and the keys between them."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

from sluice_cli import environment_without_launchers, free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo")
START_S = 30

CONFIGURATION = """ClusterName=sluice
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
KillWait=60
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""
# slurmd loads a cgroup plugin although nothing above uses one. If it has to find out which, it needs a mounted cgroup file
# system, which a chroot and many containers lack; a named plugin is loaded without.
CGROUP_CONFIGURATION = "CgroupPlugin=cgroup/v1\n"


def missing():
    """Why there can be no cluster here, or nothing."""
    if os.geteuid() != 0:
        return "not root"
    absent = [program for program in PROGRAMS if find(program) is None]
    return f"there is no {absent[0]} (Debian: slurmctld slurmd slurm-client munge)" if absent else ""


def find(program):
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin")


def has_ended(pid):
    """It is gone, or nobody has asked for its exit status yet."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Cluster:
    """`with Cluster(folder) as cluster: cluster.run("srun", "-n", 2, ...)`."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.environment = {**environment_without_launchers(), "SLURM_CONF": str(self.folder / "slurm.conf")}

    def __enter__(self):
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir(parents=True, mode=0o700)
        key = self.folder / "munge" / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=socket.gethostname().split(".")[0], folder=self.folder, controller_port=free_port(), node_port=free_port(),
            cpus=os.cpu_count()))
        (self.folder / "cgroup.conf").write_text(CGROUP_CONFIGURATION)
        try:
            self.daemon("munged", "--force", *(f"--{name}-file={self.folder}/munge/{name}" for name in ("pid", "log", "seed")),
                        f"--key-file={key}", f"--socket={self.folder}/munge/socket")
            self.daemon("slurmctld", "-f", self.environment["SLURM_CONF"])
            self.daemon("slurmd", "-f", self.environment["SLURM_CONF"])
            self.wait_until_idle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        files = [self.folder / name for name in ("slurmd.pid", "slurmctld.pid", "munge/pid")]
        pids = [int(file.read_text()) for file in files if file.exists()]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        # The controller writes its state once more: whoever removes the folder meanwhile fails.
        deadline = time.monotonic() + START_S
        while not all(has_ended(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)

    def daemon(self, program, *arguments):
        done = subprocess.run([find(program), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              env=self.environment, timeout=START_S)
        if done.returncode != 0:
            raise AssertionError(f"{program} ended with {done.returncode}: {done.stdout}{done.stderr}{self.log_of(program)}")

    def log_of(self, program):
        """The end of what a daemon has written, or nothing."""
        log = self.folder / ("munge/log" if program == "munged" else f"{program}.log")
        return log.read_text()[-2000:] if log.exists() else ""

    def wait_until_idle(self):
        deadline = time.monotonic() + START_S
        while "idle" not in (said := self.run("sinfo", "-h", "-o", "%T").stdout):
            if time.monotonic() > deadline:
                raise AssertionError(f"the node is {said!r}: {self.log_of('slurmd')}")
            time.sleep(0.2)

    def run(self, *command, cwd=None, timeout=300, **variables):
        return subprocess.run([str(word) for word in command], cwd=cwd, env={**self.environment, **variables}, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False)
