# Starts a Gluster volume of one brick on XFS: gluster.sh DIR new|again.
set -eu
dir=$1 how=$2
gluster() { command gluster --glusterd-sock="$dir/run/glusterd.socket" --mode=script "$@"; }

if [ "$how" = new ]; then
  mkdir -p "$dir"/{work,run,brick}
  truncate -s 2G "$dir/brick.img"
  mkfs.xfs -q "$dir/brick.img"
  cat >"$dir/glusterd.vol" <<EOF
volume management
    type mgmt/glusterd
    option working-directory $dir/work
    option run-directory $dir/run
    option glusterd-sockfile $dir/run/glusterd.socket
    option transport-type socket
    option transport.address-family inet
end-volume
EOF
fi
rm -f "$dir"/run/glusterd.*
mount -o loop "$dir/brick.img" "$dir/brick"
mkdir -p "$dir/brick/b"
glusterd -N -f "$dir/glusterd.vol" -l "$dir/glusterd.log" -p "$dir/run/glusterd.pid" &
until gluster volume info >/dev/null 2>&1; do sleep 0.2; done
if [ "$how" = new ]; then
  gluster volume create lab 10.99.0.1:"$dir/brick/b" force >/dev/null
  gluster volume start lab >/dev/null
fi
until gluster volume status lab detail | grep -q '^Online *: Y'; do sleep 0.2; done
echo READY
wait
