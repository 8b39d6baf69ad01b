"""Shows what PyTorch's launchers make of the environment of a node: with the variables of one process per node (RANK,
WORLD_SIZE, LOCAL_RANK), and without them. Run by scripts/test-gpu; needs torch, and accelerate, lightning and
transformers for their cases."""

import os
import subprocess
import sys
import tempfile

ACCELERATE = """
from accelerate import PartialState
s = PartialState()
print(s.distributed_type, s.num_processes, s.device)
"""

LIGHTNING = """
import torch, lightning as L
class M(L.LightningModule):
    def __init__(self):
        super().__init__(); self.l = torch.nn.Linear(4, 1)
    def training_step(self, b, i): return self.l(b).sum()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)
if __name__ == "__main__":
    data = torch.utils.data.DataLoader(torch.zeros(8, 4), batch_size=2)
    t = L.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_steps=2, logger=False, enable_checkpointing=False,
                  enable_progress_bar=False)
    t.fit(M(), data)
    print("trained with world size", t.world_size)
"""

TRAINER = """
import tempfile, torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
with tempfile.TemporaryDirectory() as d:
    GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=64, n_positions=16)).save_pretrained(d)
    model = AutoModelForCausalLM.from_pretrained(d, device_map="auto")
    data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(4)]
    args = TrainingArguments(d + "/out", max_steps=2, report_to=[], save_strategy="no", disable_tqdm=True)
    trainer = Trainer(model, args, train_dataset=data)
    trainer.train()
    print("trained on", model.device, "with", args.parallel_mode, args.n_gpu, "GPUs")
"""

NCCL = """
import torch, torch.distributed as d
torch.cuda.set_device(0)
d.init_process_group("nccl")
x = torch.ones(1 << 20, device="cuda")
d.all_reduce(x); torch.cuda.synchronize()
print("all-reduce over", d.get_world_size(), "NCCL", torch.cuda.nccl.version())
d.destroy_process_group()
"""

TORCHRUN = """
import os
print({k: v for k, v in sorted(os.environ.items()) if k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
      "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT") or k.startswith("PET_")})
"""

ONE_PROCESS_PER_NODE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
PET = {"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": "2", "PET_MASTER_ADDR": "127.0.0.1"}


def main():
    base = {k: v for k, v in os.environ.items()
            if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK") and not k.startswith("PET_")}
    base |= {"MASTER_ADDR": "127.0.0.1", "NODE_RANK": "0", "NNODES": "1", "NPROC_PER_NODE": "1",
             "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for name, source in (("accelerate", ACCELERATE), ("lightning", LIGHTNING), ("trainer", TRAINER)):
            for kind, more in (("with RANK, WORLD_SIZE and LOCAL_RANK", ONE_PROCESS_PER_NODE), ("without them", {})):
                running.append((f"{name} {kind}", [sys.executable], name, source, more))
        debug = {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "=lo"}
        running.append(("nccl, no RDMA port", [sys.executable], "nccl", NCCL, ONE_PROCESS_PER_NODE | debug))
        run = [sys.executable, "-m", "torch.distributed.run"]
        running.append(("torchrun with PET_ variables", run, "torchrun", TORCHRUN, PET | {"PET_MASTER_PORT": "29777"}))
        running.append(("torchrun with PET_ and RANK", run, "torchrun", TORCHRUN,
                        PET | ONE_PROCESS_PER_NODE | {"PET_MASTER_PORT": "29778"}))
        started = []
        for i, (title, command, name, source, more) in enumerate(running):
            path = os.path.join(folder, "case_" + name + ".py")
            with open(path, "w") as f:
                f.write(source)
            env = base | {"MASTER_PORT": str(29650 + i)} | more
            out = open(os.path.join(folder, f"{i}.out"), "w+")
            started.append((title, out, subprocess.Popen(["timeout", "-k", "5", "60", *command, path], env=env,
                                                         stdout=out, stderr=subprocess.STDOUT)))
        for title, out, process in started:
            code = process.wait()
            out.seek(0)
            text = out.read()
            print(f"== {title}: exit code {code}{' (ended by the limit)' if code in (124, 137) else ''}")
            print("\n".join(text.splitlines()[-20 if title.startswith("nccl") else -8:]))


main()
