# Data-parallel training over all ranks with nothing but the environment a node has: MASTER_ADDR, MASTER_PORT, RANK,
# WORLD_SIZE, GLOO_SOCKET_IFNAME. Every rank sees other data and starts from other parameters; DistributedDataParallel
# hands rank 0's round and averages the gradients, so all end with the same bits.
import hashlib

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1000 + rank)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)))
sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
first = last = None
for step in range(200):
    x = torch.randn(64, 16)
    y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3]
    loss = nn.functional.mse_loss(model(x), y)
    sgd.zero_grad()
    loss.backward()
    sgd.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    last = mean.item() / world
    first = last if first is None else first
    if step % 50 == 0:
        print(f"rank {rank} step {step} loss {last:.6f}", flush=True)
assert last < 0.8 * first, f"the loss went from {first} to {last}"
digest = hashlib.sha256()
for p in model.parameters():
    digest.update(p.detach().numpy().tobytes())
print(f"rank {rank} of {world} done loss {first:.6f} to {last:.6f} params sha256:{digest.hexdigest()}", flush=True)
dist.destroy_process_group()
