# The first process of a Linux that runs as a process: nfs.sh COMMAND…, with this machine's files to be read only.
# It serves a file system by NFS, runs the command and ends the machine.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null || true
for d in /run /mnt /var/lib/nfs; do mount -t tmpfs tmpfs $d; done
mkdir -p /run/rpc_pipefs /var/lib/nfs/v4recovery /mnt/tmp /mnt/served
ip link set lo up
mkfs.ext4 -q -F -E lazy_itable_init=1 /dev/ubdb
mount /dev/ubdb /mnt/served
mkdir -p /run/kernel/lib
ln -s /usr/lib/uml/modules /run/kernel/lib/modules
modprobe -d /run/kernel nfsd
modprobe -d /run/kernel nfsv4
mount -t nfsd nfsd /proc/fs/nfsd
echo 10 >/proc/fs/nfsd/nfsv4gracetime
echo 10 >/proc/fs/nfsd/nfsv4leasetime
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
exportfs -o rw,no_root_squash,no_subtree_check,fsid=0,insecure,sync '*:/mnt/served'
rpc.nfsd --no-nfs-version 3 4
rpc.mountd --no-nfs-version 3
echo "server $(uname -r), $(rpc.mountd --version 2>&1 | head -1)"
"$@" || echo "FAILED $?"
echo o >/proc/sysrq-trigger
sleep 60
