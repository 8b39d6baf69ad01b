import os

import torch
import torch.distributed as dist
from torch import nn

cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if cuda else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)).to(device)
model = nn.parallel.DistributedDataParallel(net, device_ids=[device.index] if cuda else None)
adam = torch.optim.Adam(model.parameters(), lr=1e-3)
steps = int(os.environ.get("STEPS", "500"))
for step in range(1, steps + 1):
    x = torch.randn(256, 64, device=device)
    loss = nn.functional.mse_loss(model(x), torch.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3])
    adam.zero_grad()
    loss.backward()
    adam.step()
    if step % 50 == 0 or step == steps:
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step} of {steps}, {world} processes, loss {mean.item() / world:.4f}", flush=True)
dist.destroy_process_group()
