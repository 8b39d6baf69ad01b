import os
import time

import torch
import torch.distributed as dist

cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if cuda else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
data = torch.full((int(os.environ.get("MEGABYTES", "256")) * 250_000,), float(rank + 1), device=device)
dist.all_reduce(data)
want = world * (world + 1) / 2
assert bool((data == want).all()), f"the sum is {data[0].item()}, not {want}"
data.zero_()


def rounds(n):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(n):
        dist.all_reduce(data)
    if cuda:
        torch.cuda.synchronize()
    dist.barrier()
    return (time.perf_counter() - begin) / n


rounds(5)
for i in range(5):
    seconds = rounds(10)
    if rank == 0:
        gbits = 8e-9 * data.numel() * 4 / seconds
        print(f"round {i}: {gbits:.1f} Gbit/s, bus bandwidth {gbits * 2 * (world - 1) / world:.1f} Gbit/s", flush=True)
print(f"process {rank} of {world} on {torch.cuda.get_device_name() if cuda else 'CPU'}: the sum is right", flush=True)
dist.destroy_process_group()
