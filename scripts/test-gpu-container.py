"""Runs CUDA programs in containers as the agent makes them, without Docker: with the capabilities, the seccomp profile
and the paths of agent/machine/gpu/realgpu/testdata/workload.json, which is what Docker gave runc for a workload of the
agent's (the redteam test's), and with the GPUs' devices. Run by scripts/test-gpu as root; needs runc in BIN or on the
PATH.

Usage: test-gpu-container.py BIN    (the folder of muster-agent and gpuload)
"""

import copy
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time

TRAIN = """
import torch
m = torch.nn.TransformerEncoderLayer(256, 4, batch_first=True).cuda()
o = torch.optim.AdamW(m.parameters(), fused=True)
data = torch.utils.data.DataLoader(torch.randn(256, 32, 256), batch_size=32, num_workers=2, pin_memory=True)
for x in data:
    with torch.autocast("cuda", torch.bfloat16):
        loss = m(x.cuda(non_blocking=True)).float().pow(2).mean()
    o.zero_grad(); loss.backward(); o.step()
print("trained", loss.item(), torch.cuda.get_device_name())
"""
COMPILE = """
import torch
f = torch.compile(lambda x: (x.sin() * 2 + x).sum())
print("compiled", f(torch.ones(1 << 16, device="cuda")).item())
"""
NCCL = """
import os, torch, torch.distributed as d
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", NCCL_SOCKET_IFNAME="=lo",
                  GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo")
d.init_process_group("nccl", device_id=torch.device("cuda:0"))
x = torch.ones(8, device="cuda"); d.all_reduce(x); torch.cuda.synchronize()
print("all-reduce", x[0].item()); d.destroy_process_group()
"""
GIB = 1 << 30
LIBRARIES = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2", "libgcc_s.so.1")


def read(path):
    try:
        with open(path) as f:
            return f.read().strip()
    except OSError as e:
        return str(e)


class Containers:
    """The image is this machine's own files, with a layer of changes that is thrown away."""

    def __init__(self, binaries, work):
        self.work, self.root, self.check = work, work + "/root", work + "/check"
        with open("agent/machine/gpu/realgpu/testdata/workload.json") as f:
            self.base = json.load(f)
        own = os.path.join(binaries, "runc")
        self.runc = [own if os.path.exists(own) else shutil.which("runc"), "--root", work + "/runc"]
        self.env = dict(os.environ, LD_LIBRARY_PATH=binaries)
        for folder in (self.root, self.check, work + "/up", work + "/wk"):
            os.makedirs(folder)
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir=/,upperdir={work}/up,workdir={work}/wk", self.root], check=True)
        cache = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
        paths = dict(reversed([(line.split()[0], line.split("=> ")[1]) for line in cache.splitlines()
                               if "x86-64" in line and "=> " in line]))
        self.driver = os.path.dirname(os.path.realpath(paths["libcuda.so.1"]))
        copies = {"muster-agent": f"{binaries}/muster-agent", "gpuload": f"{binaries}/gpuload",
                  "ld.so": "/lib64/ld-linux-x86-64.so.2"} | {n: paths[n] for n in LIBRARIES if n in paths}
        for name, path in copies.items():
            shutil.copy(path, f"{self.check}/{name}")
            os.chmod(f"{self.check}/{name}", 0o755)

    def config(self, args, cgroup, user, devices, memory):
        c = copy.deepcopy(self.base)
        c["process"].update(args=args, user={"uid": user, "gid": user}, cwd="/")
        if user:
            c["process"]["capabilities"].update(effective=[], permitted=[])
        c["process"]["env"].append("HOME=/tmp")
        c["root"] = {"path": self.root}
        for m in c["mounts"]:
            if m["destination"] == "/sys/fs/cgroup" and os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
                m["type"] = m["source"] = "cgroup2"
        for source, target in ((self.check, "/run/muster/gpucheck"), (self.driver, self.driver)):
            c["mounts"].append({"destination": target, "type": "bind", "source": source,
                                "options": ["rbind", "ro", "rprivate"]})
        linux = c["linux"]
        linux["cgroupsPath"] = cgroup
        linux["resources"].update(memory={"limit": memory, "swap": memory}, cpu={})
        linux["resources"].pop("blockIO", None)
        linux["devices"] = []
        for node in sorted(os.listdir("/dev")):
            s = os.stat("/dev/" + node)
            if not node.startswith("nvidia") or not stat.S_ISCHR(s.st_mode):
                continue
            number = {"type": "c", "major": os.major(s.st_rdev), "minor": os.minor(s.st_rdev)}
            linux["devices"].append(number | {"path": "/dev/" + node, "fileMode": 0o666, "uid": 0, "gid": 0})
            if devices:
                linux["resources"]["devices"].append(number | {"allow": True, "access": "rw"})
        return c

    def run(self, title, args, user=0, devices=True, memory=32 * GIB, watch=None):
        name = hashlib.sha256(title.encode()).hexdigest()
        bundle, cgroup = f"{self.work}/{name}", "/muster-test-gpu/" + name
        os.makedirs(bundle)
        with open(bundle + "/config.json", "w") as f:
            json.dump(self.config(args, cgroup, user, devices, memory), f)
        began = time.monotonic()
        process = subprocess.Popen([*self.runc, "run", "--bundle", bundle, name], env=self.env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(f"== {title}")
        if watch:
            watch("/sys/fs/cgroup" + cgroup, process)
            subprocess.run([*self.runc, "kill", name, "KILL"], env=self.env, capture_output=True)
        try:
            out, _ = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            subprocess.run([*self.runc, "kill", name, "KILL"], env=self.env, capture_output=True)
            out, _ = process.communicate()
        print(out[-2500:].strip())
        print(f"-- exit code {process.returncode} after {time.monotonic() - began:.1f} s\n", flush=True)


def memory(cgroup, process):
    """Prints how much memory the control group counted at most, and how often its limit ended a process."""
    most, events = 0, ""
    for _ in range(60):
        now = read(cgroup + "/memory.current")
        if now.isdigit():
            most, events = max(most, int(now)), read(cgroup + "/memory.events")
        if process.poll() is not None:
            break
        time.sleep(0.1)
    print(f"the control group counted {most / GIB:.2f} GiB at most; {' '.join(events.split())}")


def main():
    binaries = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", work], check=True)
        try:
            c = Containers(binaries, work)
            own = ["/run/muster/gpucheck/ld.so", "--library-path", "/run/muster/gpucheck:" + c.driver]
            check = [*own, "/run/muster/gpucheck/muster-agent", "gpucheck", "--work", "500ms", "--calls"]
            pin = [*own, "/run/muster/gpucheck/gpuload", "pin", "8"]
            c.run("the check as root", check)
            c.run("the check as user 1000", check, user=1000)
            c.run("the check where the control group forbids the devices", check, devices=False)
            c.run("8 GiB pinned, limit 16 GiB", pin, memory=16 * GIB, watch=memory)
            c.run("8 GiB pinned, limit 1 GiB", pin, memory=GIB, watch=memory)
            python = shutil.which("python3")
            for title, source in (("PyTorch: training, workers that load data, pinned memory", TRAIN),
                                  ("PyTorch: torch.compile with Triton", COMPILE), ("PyTorch: NCCL", NCCL)):
                c.run(title, [python, "-c", source])
        finally:
            subprocess.run(["umount", work + "/root"], check=False)
            subprocess.run(["umount", work], check=False)


main()
