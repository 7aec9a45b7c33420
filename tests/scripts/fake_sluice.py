"""A stand-in for build/release/sluice in the tests of the launch scripts.

`config` prints the few values that scripts ask for as the configuration ($FAKE_MODEL, $FAKE_LOCAL, $FAKE_STAGES, ...) or
the last --set has them. `train` writes what it was given to $FAKE_DIR/<rank>.json (a line in <rank>.history for each call), then
does what $FAKE_PLAN says for its rank: {"<rank>": {...}} with
  after    [rank, "started" or "ended"]: waits for that first
  say      a line for standard error
  sleep    seconds to go on (a signal ends it with `stopped`)
  stopped  exit code after a signal, which is written to $FAKE_DIR/<rank>.signals; "never": it goes on
  code     exit code
  code_of  {"word": exit code} where this word is among the arguments
"""

SOURCE = r'''#!/usr/bin/env python3
import json, os, pathlib, signal, sys, time

arguments = sys.argv[1:]
if arguments[0] == "config":
    values = {"model.name": os.environ.get("FAKE_MODEL", "vit"), "replicas.local": os.environ.get("FAKE_LOCAL", "1"), "pipeline.stages": os.environ.get("FAKE_STAGES", "2"),
              "freeze.policy": os.environ.get("FAKE_POLICY", "none"), "freeze.cache": os.environ.get("FAKE_CACHE", "off"),
              "data.views": os.environ.get("FAKE_VIEWS", "0"), "data.crop_padding": os.environ.get("FAKE_CROP", "0"),
              "data.flip": os.environ.get("FAKE_FLIP", "false"), "replicas.elastic": "false"}
    if values["replicas.local"] == "bad":
        print("error   no such key", file=sys.stderr)
        sys.exit(2)
    for name, value in zip(arguments, arguments[1:]):
        if name == "--set":
            values.update([value.split("=", 1)])
    print("[model]\nname = \"%(model.name)s\"\n\n[pipeline]\nlocal = 77\nstages = %(pipeline.stages)s      # devices\n\n[freeze]\npolicy = \"%(freeze.policy)s\"  # which\n"
          "cache = \"%(freeze.cache)s\"\n\n[data]\nviews = %(data.views)s # of a sample\ncrop_padding = %(data.crop_padding)s\nflip = %(data.flip)s\n\n"
          "[replicas]\nlocal = %(replicas.local)s            # replicas in this process\nelastic = %(replicas.elastic)s\n\n[log]\nlocal = 78\nstages = 79" % values)
    sys.exit(0)

rank = os.environ.get("RANK", "0")
folder = pathlib.Path(os.environ["FAKE_DIR"])
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NCCL_IB_DISABLE",
         "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "GOMP_SPINCOUNT")
plan = json.loads(os.environ.get("FAKE_PLAN", "{}")).get(rank, {})

def on_signal(number, _):
    with open(folder / (rank + ".signals"), "a") as file:
        file.write(signal.Signals(number).name + "\n")
    if plan.get("stopped", 130) != "never":
        os.write(2, b"saved\n")
        os._exit(plan.get("stopped", 130))

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, on_signal)
record = {"argv": arguments, "cwd": os.getcwd(), "pid": os.getpid(), "env": {n: os.environ[n] for n in names if n in os.environ}}
with open(folder / (rank + ".history"), "a") as file:
    file.write(json.dumps(record) + "\n")
unfinished = folder / (rank + ".tmp")
unfinished.write_text(json.dumps(record))
unfinished.rename(folder / (rank + ".json"))
def gone(pid):
    try:
        return open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True

if "after" in plan:
    other, what = plan["after"]
    while not (folder / (other + ".json")).exists():
        time.sleep(0.02)
    pid = json.loads((folder / (other + ".json")).read_text())["pid"]
    while what == "ended" and not gone(pid):
        time.sleep(0.02)
if "say" in plan:
    os.write(2, (plan["say"] + "\n").encode())
end = time.monotonic() + plan.get("sleep", 0)
while time.monotonic() < end:
    time.sleep(0.02)
sys.exit(next((code for word, code in plan.get("code_of", {}).items() if word in arguments), plan.get("code", 0)))
'''
