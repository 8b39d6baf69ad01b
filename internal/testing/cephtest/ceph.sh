# Starts a small Ceph with a file system and prints READY: ceph.sh DIR new|again ADDRESS. The address is of its monitor,
# 127.0.0.1:3300. Each pool has a single copy.
set -eu
dir=$1 how=$2 addr=$3
export CEPH_CONF=$dir/ceph.conf
ceph() { command ceph --connect-timeout 10 "$@"; }

if [ "$how" = new ]; then
  mkdir -p "$dir"/{run,mon,osd,mds,rgw}
  fsid=$(cat /proc/sys/kernel/random/uuid)
  cat >"$CEPH_CONF" <<EOF
[global]
fsid = $fsid
mon host = v2:$addr
public addr = ${addr%:*}
keyring = $dir/keyring
run dir = $dir/run
admin socket = $dir/run/\$name.\$pid.asok
log file = $dir/\$name.log
pid file =
mon data = $dir/mon
osd data = $dir/osd
mds data = $dir/mds
mon data avail warn = 1
mon data avail crit = 1
mon allow pool size one = true
auth allow insecure global id reclaim = false
bluestore block size = 3221225472
osd memory target = 939524096
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
# An object gateway that starts waits for those that were killed until their watches end.
osd client watch timeout = 1
rgw cache enabled = false
rgw data = $dir/rgw
EOF
  keys="$dir/keyring"
  ceph-authtool --create-keyring "$keys" --gen-key -n mon. --cap mon 'allow *' >/dev/null
  ceph-authtool "$keys" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mds 'allow *' \
    --cap mgr 'allow *'
  ceph-authtool "$keys" --gen-key -n osd.0 --cap mon 'allow profile osd' --cap osd 'allow *'
  ceph-authtool "$keys" --gen-key -n mds.a --cap mon 'allow profile mds' --cap osd 'allow *' --cap mds allow
  monmaptool --create --fsid "$fsid" --addv a "[v2:$addr]" "$dir/monmap" >/dev/null
  ceph-mon -i a --mkfs --monmap "$dir/monmap" --keyring "$keys"
fi
ceph-mon -i a -f >"$dir/mon.out" 2>&1 &
until ceph mon stat >/dev/null 2>&1; do sleep 0.2; done
if [ "$how" = new ]; then
  ceph auth import -i "$dir/keyring" >/dev/null 2>&1
  osd=$(cat /proc/sys/kernel/random/uuid)
  ceph osd new "$osd" >/dev/null
  ceph-osd -i 0 --mkfs --osd-uuid "$osd" >"$dir/osd.out" 2>&1
fi
ceph-osd -i 0 -f >>"$dir/osd.out" 2>&1 &
if [ "$how" = new ]; then
  ceph osd pool create meta 1 >/dev/null 2>&1
  ceph osd pool create data 1 >/dev/null 2>&1
  ceph fs new cephfs meta data >/dev/null 2>&1
  ceph fs authorize cephfs client.lab / rw >>"$dir/keyring"
fi
ceph-mds -i a -f >"$dir/mds.out" 2>&1 &
# After a restart the state that the monitor had stays until it misses the old server.
until ceph mds stat | grep -q up:active && ceph osd stat | grep -q '1 up'; do sleep 0.2; done
echo READY
wait
