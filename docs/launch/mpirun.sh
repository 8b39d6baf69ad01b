#!/bin/sh
# mpirun on rank 0 starts one process per GPU on every rank, through the injected binary: images need no sshd. Run this
# on every rank; its arguments are mpirun's:
#     sh mpirun.sh python3 allreduce.py
# The other ranks wait until rank 0 is done, and end as it did. A pipe remembers nothing, should all start again.
result=/tmp/mpirun-result
if [ "$NODE_RANK" != 0 ]; then
	[ -p "$result" ] || mkfifo "$result"
	read -r code <"$result"
	exit "$code"
fi
# A container's user is root, and reading another process's memory is not allowed in it.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
mpirun --hostfile "$MUSTER_HOSTFILE" --bind-to none "$@"
code=$?
i=1
while [ "$i" -lt "$NNODES" ]; do
	/run/muster/guest rsh "node-$i" "until [ -p $result ]; do sleep 1; done; echo $code >$result"
	i=$((i + 1))
done
exit "$code"
