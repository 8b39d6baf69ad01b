package hostinfo

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
)

// softRoCE is the driver that is RoCE in software, on any network port.
const softRoCE = "rdma_rxe"

// maxPKeys limits how many partition keys are listed; a port's table has up to 128, most of them empty.
const maxPKeys = 32

// HCAs reads the host's RDMA ports from a sysfs tree, "" = /sys, by device and port.
func HCAs(root string) []agentapi.HCA {
	if root == "" {
		root = "/sys"
	}
	dir := filepath.Join(root, "class/infiniband")
	devices, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []agentapi.HCA
	for _, d := range devices {
		base := deviceOf(root, filepath.Join(dir, d.Name()), d.Name())
		ports, err := os.ReadDir(filepath.Join(dir, d.Name(), "ports"))
		if err != nil {
			continue
		}
		for _, p := range ports {
			if n, err := strconv.Atoi(p.Name()); err == nil {
				h := base
				h.Port = n
				readPort(&h, filepath.Join(dir, d.Name(), "ports", p.Name()))
				out = append(out, h)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b agentapi.HCA) int {
		if a.Device != b.Device {
			return strings.Compare(a.Device, b.Device)
		}
		return a.Port - b.Port
	})
	return out
}

func factOf(path string) string {
	b, _ := os.ReadFile(path)
	return strings.TrimSpace(string(b))
}

// deviceOf reads what all ports of a device share.
func deviceOf(root, at, name string) agentapi.HCA {
	h := agentapi.HCA{Device: name, NodeGUID: guid(factOf(filepath.Join(at, "node_guid")))}
	if path, err := filepath.EvalSymlinks(filepath.Join(at, "device")); err == nil {
		h.PCIBus = filepath.Base(path)
	}
	if driver, err := os.Readlink(filepath.Join(at, "device/driver")); err == nil {
		h.Driver = filepath.Base(driver)
	}
	if node, err := strconv.Atoi(factOf(filepath.Join(at, "device/numa_node"))); err == nil && node >= 0 {
		h.NUMANode = agentapi.Known(node)
	}
	if nets, err := os.ReadDir(filepath.Join(at, "device/net")); err == nil && len(nets) > 0 {
		h.Netdev = nets[0].Name()
	}
	// A device in software, soft-RoCE, has no hardware behind it; it names its network port itself.
	if parent := factOf(filepath.Join(at, "parent")); h.Driver == "" && parent != "" {
		h.Driver, h.Netdev = softRoCE, parent
	}
	verbs, _ := filepath.Glob(filepath.Join(root, "class/infiniband_verbs", "uverbs*", "ibdev"))
	for _, v := range verbs {
		if factOf(v) == name {
			h.Verbs = filepath.Base(filepath.Dir(v))
		}
	}
	h.NVSwitch = LeadsToNVSwitch(filepath.Join(at, "device"))
	return h
}

// LeadsToNVSwitch reports whether a PCI device, given by its folder in sysfs, is a port of a network card that belongs
// to the GPUs' switches. The fabric manager finds these by the same word in their vital product data.
func LeadsToNVSwitch(device string) bool {
	return strings.Contains(vpd(filepath.Join(device, "vpd")), "SW_MNG")
}

// vpd returns a device's vital product data as far as it can be read.
func vpd(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// readPort reads what a port says of itself.
func readPort(h *agentapi.HCA, at string) {
	h.LinkLayer = factOf(filepath.Join(at, "link_layer"))
	_, h.State, _ = strings.Cut(factOf(filepath.Join(at, "state")), ": ") // "4: ACTIVE"
	rate, _, _ := strings.Cut(factOf(filepath.Join(at, "rate")), " ")     // "400 Gb/sec (4X NDR)"
	if gbps, err := strconv.ParseFloat(rate, 64); err == nil && gbps > 0 && h.State != "DOWN" {
		h.Gbps = gbps
	}
	if h.LinkLayer == "Ethernet" {
		readGID(h, at)
	}
	if h.LinkLayer != "InfiniBand" {
		return
	}
	if gid := strings.Split(factOf(filepath.Join(at, "gids/0")), ":"); len(gid) == 8 {
		h.Subnet, h.PortGUID = strings.Join(gid[:4], ""), strings.Join(gid[4:], "")
	}
	keys, _ := os.ReadDir(filepath.Join(at, "pkeys"))
	slices.SortFunc(keys, func(a, b os.DirEntry) int {
		x, _ := strconv.Atoi(a.Name())
		y, _ := strconv.Atoi(b.Name())
		return x - y
	})
	for _, k := range keys {
		if key := factOf(filepath.Join(at, "pkeys", k.Name())); key != "" && key != "0x0000" && len(h.PKeys) < maxPKeys {
			h.PKeys = append(h.PKeys, key)
		}
	}
}

// guid removes the colons of a GUID.
func guid(s string) string { return strings.ReplaceAll(s, ":", "") }
