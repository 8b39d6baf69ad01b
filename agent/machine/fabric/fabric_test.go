package fabric_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/fabric"
	"github.com/musterhq/muster/agent/machine/hostinfo/sysfstest"
	"github.com/musterhq/muster/internal/agentapi"
)

// manager is a subnet manager with a program in front, for two ports of a host: partitions are a file, as opensm's
// partitions.conf is, from which it fills the ports' tables.
type manager struct {
	fabric.Manager
	dir string
	t   *testing.T
}

// The program notes what it is called with. It keeps one partition for each port, in a file; how says how it behaves.
const program = `#!/bin/sh
dir=$(dirname "$0")
echo "$*" >>$dir/calls
how=$(cat $dir/how)
[ "$how" = fails ] && { echo "no route to the subnet manager" >&2; exit 7; }
action=$1; pkey=$4; shift 4
for guid; do
	case $guid in *01) device=mlx5_0 ;; *02) device=mlx5_1 ;; *) exit 9 ;; esac
	table=$dir/sys/class/infiniband/$device/ports/1/pkeys
	if [ $action = leave ]; then echo 0x0000 >$table/1; continue; fi
	case $how in
	adds) echo $pkey >$table/2 ;;
	limited) printf '0x%04x\n' $((pkey & 0x7fff)) >$table/1 ;;
	half) [ $device = mlx5_0 ] && echo $pkey >$table/1 ;;
	late) (sleep 0.5; echo $pkey >$table/1) >/dev/null 2>&1 & ;;
	skewed) if [ $device = mlx5_0 ]; then echo $pkey >$table/1; else echo $pkey >$table/2; fi ;;
	*) echo $pkey >$table/1 ;;
	esac
done
exit 0
`

var ports = []agentapi.HCA{
	{Device: "mlx5_0", Port: 1, LinkLayer: "InfiniBand", PortGUID: "b83fd20300123401"},
	{Device: "mlx5_1", Port: 1, LinkLayer: "InfiniBand", PortGUID: "b83fd20300123402"},
}

func newManager(t *testing.T) *manager {
	t.Helper()
	m := &manager{dir: t.TempDir(), t: t}
	at := filepath.Join(m.dir, "program")
	if err := os.WriteFile(at, []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	m.Manager = fabric.Manager{Program: at, Sys: filepath.Join(m.dir, "sys"), Patience: 3 * time.Second}
	for _, p := range ports {
		for i, key := range []string{"0x7fff", "0x0000", "0x0000"} {
			m.put(p.Device, i, key)
		}
	}
	m.behaves("well")
	return m
}

func (m *manager) behaves(how string) { sysfstest.Write(m.t, m.dir, "how", how) }

func (m *manager) put(device string, index int, key string) {
	sysfstest.Write(m.t, m.Sys, fmt.Sprintf("class/infiniband/%s/ports/1/pkeys/%d", device, index), key+"\n")
}

func partition(cluster string, pkey int) agentapi.Partition {
	return agentapi.Partition{Fabric: "rack", Cluster: cluster, PKey: pkey}
}

// The program gets the fabric, the cluster, the key and the ports, and the ports are returned once their tables show
// it.
func TestJoin(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	for _, p := range []agentapi.Partition{partition("cluster_a", 0x2001), partition("cluster_b", 0x7ffe)} {
		got, err := m.Join(t.Context(), p, ports)
		if err != nil || len(got) != 2 || got[0].PKeyIndex.Or(-1) != 1 || got[1].PKeyIndex.Or(-1) != 1 ||
			got[1].Device != "mlx5_1" {
			t.Errorf("%+v: %+v, %v", p, got, err)
		}
		if err := m.Check(p, ports); err != nil {
			t.Error(err)
		}
	}
	m.put("mlx5_1", 0, "0xffff") // a subnet manager that starts with its default configuration
	if err := m.Check(partition("cluster_b", 0x7ffe), ports); err == nil || !strings.Contains(err.Error(), "mlx5_1/1") {
		t.Errorf("a port that others reach: %v", err)
	}
	m.put("mlx5_1", 0, "0x7fff")
	if err := m.Leave(t.Context(), partition("cluster_b", 0x7ffe), ports); err != nil {
		t.Fatal(err)
	}
	calls, _ := os.ReadFile(filepath.Join(m.dir, "calls"))
	guids := " 0xb83fd20300123401 0xb83fd20300123402\n"
	want := "join rack cluster_a 0xa001" + guids + "join rack cluster_b 0xfffe" + guids +
		"leave rack cluster_b 0xfffe" + guids
	if string(calls) != want {
		t.Errorf("called with\n%s, want\n%s", calls, want)
	}
	m.behaves("late")
	if _, err := m.Join(t.Context(), partition("cluster_c", 0x2002), ports); err != nil {
		t.Errorf("a subnet manager that takes a moment: %v", err)
	}
}

// Ports that are in anything else than the cluster's partition are not handed out, whatever the program says.
func TestJoinTrustsOnlyTheTables(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, how string
		before    map[string]string // of mlx5_1 in the tables
		pkey      int
		want      string
	}{
		{"the program fails", "fails", nil, 0x2001, "no route to the subnet manager"},
		{"a port is left out", "half", nil, 0x2001, "mlx5_1/1"},
		{"limited members", "limited", nil, 0x2001, "mlx5_0/1"},
		{"it stays in the cluster's before", "adds", map[string]string{"1": "0xa007"}, 0x2001, "member of 0xa007"},
		{"it stays a limited member of it", "adds", map[string]string{"1": "0x2007"}, 0x2001, "member of 0x2007"},
		{"it is a full member of the default", "well", map[string]string{"0": "0xffff"}, 0x2001, "member of 0xffff"},
		{"the last of many", "well", map[string]string{"127": "0xa003"}, 0x2001, "member of 0xa003"},
		{"a table that cannot be understood", "well", map[string]string{"2": "?"}, 0x2001, "partition key 2"},
		{"at two indexes", "skewed", nil, 0x2001, "at index 1 of mlx5_0/1 and at index 2 of mlx5_1/1"},
		{"the default partition", "well", nil, 0x7fff, "out of range"},
		{"no partition", "well", nil, 0, "out of range"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newManager(t)
			m.behaves(tc.how)
			m.Patience = time.Millisecond
			for index, key := range tc.before {
				sysfstest.Write(t, m.Sys, "class/infiniband/mlx5_1/ports/1/pkeys/"+index, key+"\n")
			}
			got, err := m.Join(t.Context(), partition("cluster_a", tc.pkey), ports)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
