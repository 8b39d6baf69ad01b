# Every process adds its rank to a sum that all get, with Open MPI's Python binding.
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
total = world.allreduce(rank)
assert total == size * (size - 1) // 2
print(f"process {rank} of {size} on {MPI.Get_processor_name()}: the sum is {total}", flush=True)
