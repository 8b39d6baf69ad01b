# Runs a client in the foreground and prints READY when the file system is mounted: mount.sh KIND DIR POINT NAME.
set -eu
kind=$1 dir=$2 point=$3 name=$4
(until mountpoint -q "$point"; do sleep 0.1; done; echo READY) &
case $kind in
  ceph) exec ceph-fuse -f -c "$dir/ceph.conf" -n "client.$name" "$point" 2>"$dir/client.out" >&2 ;;
  gluster) exec glusterfs -N --volfile-server=10.99.0.1 --volfile-id=lab -l "$dir/client.log" "$point" ;;
esac
