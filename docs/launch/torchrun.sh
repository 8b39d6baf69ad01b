#!/bin/sh
# One process per GPU on every rank, started by torchrun. Run this on every rank; its arguments are the program's:
#     sh torchrun.sh train.py --epochs 3
exec python3 -m torch.distributed.run --nnodes "$NNODES" --node_rank "$NODE_RANK" --nproc_per_node "$NPROC_PER_NODE" \
	--master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" "$@"
