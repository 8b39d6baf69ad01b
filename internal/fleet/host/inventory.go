package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// MaxGPUs is the largest number of GPUs of one host, and of slices of them: 16 GPUs in 7 slices each.
const MaxGPUs = 128

// Health of a GPU.
const (
	Healthy     = "healthy"
	Suspect     = "suspect"
	Quarantined = "quarantined"
)

// badness orders health states; greater is worse. It lacks unknown states.
var badness = map[string]int{Healthy: 0, Suspect: 1, Quarantined: 2}

// checkInventory rejects impossible values and cleans all texts, because renters see them in terminals and pages.
func checkInventory(inv *agentapi.Inventory) error {
	var bad fault.Fields
	for i, g := range inv.GPUs {
		for _, s := range []string{g.UUID, g.Model, g.PCIBus, g.Architecture, g.ComputeCap} {
			if !utf8.ValidString(s) || text.OneLine(s) != s {
				bad.Add(fmt.Sprintf("gpus[%d]", i), "a text holds control characters or is not UTF-8")
			}
		}
	}
	cleanTexts(reflect.ValueOf(inv))
	if len(inv.GPUs) > MaxGPUs {
		bad.Add("gpus", "at most %d GPUs", MaxGPUs)
	}
	for _, f := range []struct {
		name            string
		is, least, most int64
	}{
		{"cpu_cores", int64(inv.CPUCores), 1, 1 << 16},
		{"ram_mb", inv.RAMMB, 1, 1 << 40},
		{"disk_gb", inv.DiskGB, 0, 1 << 30},
		{"scratch_gb", inv.ScratchGB, 0, 1 << 30},
	} {
		if f.is < f.least || f.is > f.most {
			bad.Add(f.name, "out of range: want %d to %d", f.least, f.most)
		}
	}
	inv.NUMA = inRange(inv, inv.NUMA, "NUMA nodes", 1024, func(n agentapi.NUMANode) bool {
		return n.Node >= 0 && len(n.CPUs) <= 4096 && n.MemoryMB >= 0 && n.MemoryMB <= 1<<40 && len(n.Distances) <= 1024
	})
	inv.NICs = inRange(inv, inv.NICs, "network ports", 256, func(n agentapi.NIC) bool {
		return len(n.Name) <= 15 && n.SpeedMbps >= 0 && n.SpeedMbps <= 1<<30 && len(n.Driver) <= 64 && len(n.RDMA) <= 64
	})
	inv.HCAs = inRange(inv, inv.HCAs, "RDMA ports", 256, hcaInRange)
	if r := inv.RDMA; r != nil && (math.IsNaN(r.Gbps) || r.Gbps < 0 || r.Gbps > 1e6 || r.Rails < 0 || r.Rails > 256) {
		bad.Add("rdma", "out of range")
	}
	seen := map[string]bool{}
	for i, g := range inv.GPUs {
		at := fmt.Sprintf("gpus[%d]", i)
		switch {
		case checkDevice(inv, &g) != "":
			bad.Add(at+".uuid", "%s", checkDevice(inv, &g))
		case seen[g.UUID]:
			bad.Add(at+".uuid", "named twice")
		case g.Model == "" || len(g.Model) > 100 || len(g.PCIBus) > 40 || len(g.Architecture) > 40 || len(g.ComputeCap) > 10:
			bad.Add(at+".model", "missing or too long")
		case g.VRAMMB < 1 || g.VRAMMB > 1<<24 || g.Index < 0 || g.Index > 1024:
			bad.Add(at+".vram_mb", "out of range")
		}
		seen[g.UUID] = true
	}
	return bad.Err()
}

// inRange returns the items of an inventory that can be, at most the given number. If that leaves any out, the
// inventory gets a problem that says so: one odd device must not keep the host from reporting the others.
func inRange[T any](inv *agentapi.Inventory, items []T, what string, most int, ok func(T) bool) (out []T) {
	for _, item := range items {
		if ok(item) && len(out) < most {
			out = append(out, item)
		}
	}
	if left := len(items) - len(out); left > 0 {
		inv.Problems = append(slices.Clip(inv.Problems), agentapi.Problem{Code: "inventory", Severity: "warn",
			Cause: fmt.Sprintf("%d %s are left out: they are more than %d, or have values that cannot be", left, what, most)})
	}
	return out
}

// cleanTexts replaces control characters and invalid UTF-8 in all strings reachable from v, a pointer.
func cleanTexts(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			cleanTexts(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			cleanTexts(v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			cleanTexts(v.Index(i))
		}
	case reflect.Map: // of texts: agentapi.GPU's runtimes
		for _, k := range v.MapKeys() {
			clean := reflect.New(v.Type().Elem()).Elem()
			clean.Set(v.MapIndex(k))
			cleanTexts(clean)
			v.SetMapIndex(k, clean)
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString(text.OneLine(strings.ToValidUTF8(v.String(), "\uFFFD")))
		}
	}
}

// inventoryRules is part of an inventory's hash. Raise it when the same inventory must be stored in another way than
// before.
const inventoryRules = 5

// HashInventory identifies the content of an inventory as the host sent it.
func HashInventory(inv agentapi.Inventory) ([]byte, error) {
	raw, err := json.Marshal(inv)
	if err != nil {
		return nil, err
	}
	h := sha256.Sum256(append(raw, inventoryRules))
	return h[:], nil
}

// hcaInRange reports whether what a host says of an RDMA port can be stored.
func hcaInRange(h agentapi.HCA) bool {
	for _, text := range []string{h.Device, h.Driver, h.LinkLayer, h.State, h.NodeGUID, h.PortGUID, h.Subnet, h.Netdev,
		h.PCIBus, h.Verbs, h.GID} {
		if len(text) > 64 {
			return false
		}
	}
	tooLong := func(key string) bool { return len(key) > 10 }
	return h.Port >= 0 && h.Port < 256 && h.Gbps >= 0 && h.Gbps < 1e6 && len(h.PKeys) <= 128 &&
		!slices.ContainsFunc(h.PKeys, tooLong)
}

// Sent is an inventory that a host sent, by its hash.
type Sent struct {
	Host id.Host
	Hash []byte
}

// SameInventories records that hosts sent inventories again, with one statement. The result is false for each that is
// stored differently or of which a GPU is missing: that one must be stored with RecordInventories.
func SameInventories(ctx context.Context, d *db.DB, all []Sent) ([]bool, error) {
	hosts, hashes := make([]id.Host, len(all)), make([][]byte, len(all))
	for i, s := range all {
		hosts[i], hashes[i] = s.Host, s.Hash
	}
	var same []id.Host
	err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		same, err = tx.Q.TouchInventories(ctx, id.UUIDs(hosts...), hashes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("inventories of %d hosts: %w", len(all), err)
	}
	stored, sent := make(map[id.Host]bool, len(same)), make(map[id.Host][]byte, len(all))
	for _, h := range same {
		stored[h] = true
	}
	for _, s := range all {
		if other, seen := sent[s.Host]; seen && !bytes.Equal(other, s.Hash) {
			sent[s.Host] = nil // of a host that sent two at once it is not known which one is the same
		} else {
			sent[s.Host] = s.Hash
		}
	}
	out := make([]bool, len(all))
	for i, s := range all {
		out[i] = stored[s.Host] && sent[s.Host] != nil
	}
	return out, nil
}

// runtimes returns the OCI runtimes of an inventory that renters can choose, sorted and without duplicates.
func runtimes(inv *agentapi.Inventory) []string {
	if len(inv.Runtimes) == 0 {
		return []string{agentapi.RuntimeRunc}
	}
	out := []string{}
	for _, known := range []string{agentapi.RuntimeRunc, agentapi.RuntimeRunsc} {
		if slices.Contains(inv.Runtimes, known) {
			out = append(out, known)
		}
	}
	return out
}

// rdma returns what a host lends of its RDMA network. An isolation or a kind of link that this
// server does not know is none.
func rdma(inv *agentapi.Inventory) agentapi.RDMA {
	if inv.RDMA == nil {
		return agentapi.RDMA{Isolation: agentapi.IsolationSole}
	}
	switch inv.RDMA.Isolation {
	case agentapi.IsolationSole, agentapi.IsolationPartition:
	default:
		return agentapi.RDMA{Isolation: agentapi.IsolationSole}
	}
	switch inv.RDMA.Link {
	case "", agentapi.LinkInfiniBand, agentapi.LinkRoCE, agentapi.LinkEFA:
	default:
		return agentapi.RDMA{Isolation: agentapi.IsolationSole}
	}
	return *inv.RDMA
}

// scratch returns the scratch space of an inventory in GB, or 0 if its agent does not support scratch.
func scratch(inv *agentapi.Inventory) int64 {
	if !slices.Contains(inv.Capabilities, agentapi.CapScratch) {
		return 0
	}
	return inv.ScratchGB
}

// watts converts a power limit to whole watts, rounded down. It returns 0 if the limit is unknown or implausible.
func watts(mw agentapi.Optional[int64]) int32 {
	const most = 100_000
	if w := mw.Or(0) / 1000; w >= 1 && w <= most {
		return int32(w)
	}
	return 0
}

// pcieGen returns the generation of a GPU's PCIe link, and whether it was measured under load. What was not measured,
// or cannot be, is the most that the GPU reports.
func pcieGen(g *agentapi.GPU) (gen int32, measured bool) {
	most, loaded := g.PCIeGenMax.Or(0), g.PCIeGenLoaded
	if loaded > 0 && loaded <= most {
		return int32(loaded), true
	}
	return int32(most), false
}

// inUse returns the reason for which a GPU without a claim cannot be rented, or "": the host itself uses it, or it is
// split into MIG instances, so that a container that requests the whole GPU would get none.
func inUse(g *agentapi.GPU) string {
	if g.InUse == "" && g.KindOf() == agentapi.KindGPU && g.MIG.Or(false) {
		return "split into instances (MIG)"
	}
	return text.Clip(g.InUse, 200)
}
