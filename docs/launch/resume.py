# A data-parallel training that goes on after a host is lost. The ranks save PyTorch's distributed checkpoints: each
# writes its slice of the parameters and of the optimizer's state into the folder of the step, on a volume with mode
# ranks, and one call makes what all of them have written durable. When a host is lost, all ranks start again from the
# last step that is durable:
#
#     muster cluster create --nodes 2 --mount train:/data:ranks --on-node-failure replace --image … -- python3 resume.py
#
# STEPS is how many steps there are (200), EVERY how many are between two checkpoints (10), and PACE how many seconds
# a step takes at least (0), to have the time to lose a host.
import hashlib
import os
import shutil
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import muster

DATA = os.environ.get("DATA", "/data")
STEPS, EVERY = int(os.environ.get("STEPS", 200)), int(os.environ.get("EVERY", 10))
PACE = float(os.environ.get("PACE", 0))

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world,))
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
model = nn.parallel.DistributedDataParallel(net)
sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for p in net.parameters():
    sgd.state[p]["momentum_buffer"] = torch.zeros_like(p)


def parts():
    """Returns the tensors that a checkpoint keeps, by name: views of what the training changes."""
    for name, p in net.named_parameters():
        yield f"model.{name}", p.data.view(-1)
        yield f"momentum.{name}", sgd.state[p]["momentum_buffer"].view(-1)


def save(step):
    folder = f"{DATA}/step_{step}"
    shutil.rmtree(folder, ignore_errors=True)  # what a start that was lost has left
    # All ranks have the whole state. Sharded over them, it is written once, a slice by each.
    dcp.save({name: distribute_tensor(t, mesh, [Shard(0)]) for name, t in parts()}, checkpoint_id=folder)
    c = muster.checkpoint(folder, label=f"step_{step}", all_ranks=True)
    print(f"rank {rank}: step {step} is durable in snapshot {c['snapshot']}", flush=True)
    # Each rank deletes its files of earlier checkpoints. One stays, for readers of the volume.
    shutil.rmtree(f"{DATA}/step_{step - 2 * EVERY}", ignore_errors=True)


def load(label):
    """Reads the whole state, each slice from the file of the rank that wrote it, and returns its step."""
    dcp.load(dict(parts()), checkpoint_id=f"{DATA}/{label}")
    return int(label.removeprefix("step_"))


begin = 0
if label := muster.resume_label():
    begin = load(label)
    print(f"rank {rank}: resumes at step {begin}", flush=True)
for step in range(begin + 1, STEPS + 1):
    time.sleep(PACE)
    # The data of a step depends on the step and the rank alone, so a step that is computed again sees the same.
    g = torch.Generator().manual_seed(step * world + rank)
    x = torch.randn(64, 16, generator=g)
    y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3]
    loss = nn.functional.mse_loss(model(x), y)
    sgd.zero_grad()
    loss.backward()
    sgd.step()
    if step % EVERY == 0:
        print(f"rank {rank}: step {step} has loss {loss.item():.6f}", flush=True)
        save(step)
digest = hashlib.sha256()
for _, t in parts():
    digest.update(t.numpy().tobytes())
print(f"rank {rank} of {world} done at step {STEPS} from {begin} state sha256:{digest.hexdigest()}", flush=True)
dist.destroy_process_group()
