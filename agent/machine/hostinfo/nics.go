package hostinfo

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
)

// NICs reads the host's network ports from a sysfs tree, "" = /sys, by name: ports of devices, and bonds of them. Ports
// that exist in software only (bridges, tunnels, containers' ends) are left out, unless also names them.
func NICs(root string, also ...string) []agentapi.NIC {
	if root == "" {
		root = "/sys"
	}
	dir := filepath.Join(root, "class/net")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []agentapi.NIC
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		fact := func(name string) string {
			b, _ := os.ReadFile(filepath.Join(at, name))
			return strings.TrimSpace(string(b))
		}
		if !exists(filepath.Join(at, "device")) && !exists(filepath.Join(at, "bonding")) && !slices.Contains(also, e.Name()) {
			continue
		}
		n := agentapi.NIC{Name: e.Name(), Up: fact("operstate") == "up"}
		if speed, err := strconv.Atoi(fact("speed")); err == nil && speed > 0 { // -1, or an error, without a link
			n.SpeedMbps = speed
		}
		if driver, err := os.Readlink(filepath.Join(at, "device/driver")); err == nil {
			n.Driver = filepath.Base(driver)
		}
		if node, err := strconv.Atoi(fact("device/numa_node")); err == nil && node >= 0 {
			n.NUMANode = agentapi.Known(node)
		}
		if rdma, err := os.ReadDir(filepath.Join(at, "device/infiniband")); err == nil && len(rdma) > 0 {
			n.RDMA = rdma[0].Name()
		}
		out = append(out, n)
	}
	return out
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
