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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
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

// RecordInventory stores a host's inventory. It adds new GPUs and marks missing ones as not present. A GPU that another
// host has moves to this one if that host is gone (see holderGone). Otherwise it is refused with fault.Conflict if that
// host is of the same organisation, and becomes contested if it is not.
func RecordInventory(ctx context.Context, tx *db.Tx, host id.Host, inv agentapi.Inventory) error {
	h, err := lockOne(ctx, tx, host)
	if err != nil {
		return err
	}
	switch {
	case h.State == Retired:
		return fault.New(fault.Conflict, "The host is retired.")
	case h.Simulated != inv.Simulated:
		return fault.New(fault.Conflict, "The host enrolled with simulated GPUs = %t and now says %t: enrol it again.",
			h.Simulated, inv.Simulated)
	}
	hash, err := HashInventory(inv)
	if err != nil {
		return err
	}
	if err := checkInventory(&inv); err != nil {
		return err
	}
	if err := putInventory(ctx, tx, host, &inv, hash); err != nil || !h.Ephemeral {
		return err
	}
	return removeMissing(ctx, tx, host)
}

// removeMissing removes the GPUs that the last inventory of an ephemeral host does not list and that have no claim: its
// machine was stopped, and started on other ones. Agents go on listing GPUs that fail while the machine runs.
func removeMissing(ctx context.Context, tx *db.Tx, host id.Host) error {
	n, err := tx.Q.RemoveMissingGPUs(ctx, host)
	if err == nil && n > 0 {
		err = tx.Q.EndContests(ctx, host)
	}
	if err != nil {
		return fmt.Errorf("remove missing GPUs of %s: %w", host, err)
	}
	return nil
}

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
	if len(inv.NUMA) > 1024 {
		bad.Add("numa", "at most 1024 nodes")
	}
	for i, n := range inv.NUMA {
		if n.Node < 0 || len(n.CPUs) > 4096 || n.MemoryMB < 0 || n.MemoryMB > 1<<40 || len(n.Distances) > 1024 {
			bad.Add(fmt.Sprintf("numa[%d]", i), "out of range")
		}
	}
	if len(inv.NICs) > 256 {
		bad.Add("nics", "at most 256 network ports")
	}
	for i, n := range inv.NICs {
		if len(n.Name) > 15 || n.SpeedMbps < 0 || n.SpeedMbps > 1<<30 || len(n.Driver) > 64 || len(n.RDMA) > 64 {
			bad.Add(fmt.Sprintf("nics[%d]", i), "out of range")
		}
	}
	if len(inv.HCAs) > 256 {
		bad.Add("hcas", "at most 256 RDMA ports")
	}
	for i, h := range inv.HCAs {
		if !hcaInRange(h) {
			bad.Add(fmt.Sprintf("hcas[%d]", i), "out of range")
		}
	}
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
// stored differently or of which a GPU is missing: that one must be stored with RecordInventory.
func SameInventories(ctx context.Context, d *db.DB, all []Sent) ([]bool, error) {
	hosts, hashes := make([]id.Host, len(all)), make([][]byte, len(all))
	for i, s := range all {
		hosts[i], hashes[i] = s.Host, s.Hash
	}
	var same []id.Host
	err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		same, err = tx.Q.TouchInventories(ctx, uuids(hosts), hashes)
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

// putInventory stores a checked inventory. The host must be locked or new. hash is that of the inventory as the host
// sent it; nil: the next inventory is stored whatever it is.
func putInventory(ctx context.Context, tx *db.Tx, host id.Host, inv *agentapi.Inventory, hash []byte) error {
	var floors []floor
	b := &pgx.Batch{}
	queueFloors(b, &floors)
	found := queueFoundGPUs(b, host, inv)
	if err := tx.Send(ctx, b); err != nil {
		return fmt.Errorf("GPUs of %s: %w", host, err)
	}
	gpus, err := found.judge(ctx, tx, host, inv)
	if err != nil {
		return err
	}
	inv.Problems = append(inv.Problems, floorProblems(inv, floors)...)
	raw, err := json.Marshal(inv)
	if err != nil {
		return err
	}
	n := int32(len(inv.GPUs))
	b = &pgx.Batch{}
	db.Write(b, (*dbq.Queries).PutHostInventory, dbq.PutHostInventoryParams{
		HostID:    host,
		Inventory: raw,
		Hash:      hash,
		Gpus:      &n,
	})
	db.Write(b, (*dbq.Queries).SetHostInventory, dbq.SetHostInventoryParams{
		ID:            host,
		BootID:        text.Clip(inv.BootID, 64),
		CPUCores:      int32(inv.CPUCores),
		RAMMb:         inv.RAMMB,
		RdmaGbps:      rdma(inv).Gbps,
		RdmaRails:     int32(rdma(inv).Rails),
		RdmaLink:      rdma(inv).Link,
		RdmaIsolation: rdma(inv).Isolation,
		RdmaNccl:      rdma(inv).NCCL,
		DiskGb:        inv.DiskGB,
		DiskLimited:   inv.DiskLimited,
		ScratchGb:     scratch(inv),
		Runtimes:      runtimes(inv),
		Driver:        text.Clip(inv.Driver, 40),
		CudaMax:       text.Clip(inv.CUDAMax, 20),
		MultiNode:     inv.MultiNode,
		Blocked:       blocked(inv),
	})
	queueImages(b, host, inv.Images)
	gpus.queueWrite(b, host)
	if err := tx.Send(ctx, b); db.IsUnique(err, "gpu_uuid_active") {
		return refused(fault.Conflict, "gpu_active", "A GPU of this host was listed by another host at the same time: "+
			"send the inventory again.")
	} else if err != nil {
		return fmt.Errorf("inventory of %s: %w", host, err)
	}
	if len(gpus.free) == 0 {
		return nil
	}
	return defend(ctx, tx, host, gpus.free)
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

// foundGPUs is what is stored of the GPUs of an inventory.
type foundGPUs struct {
	known   []dbq.ActiveGPUsRow     // of the host
	holders []dbq.HoldersOfUUIDsRow // on other hosts
}

// queueFoundGPUs queues the reads of it.
func queueFoundGPUs(b *pgx.Batch, host id.Host, inv *agentapi.Inventory) *foundGPUs {
	f, listed := &foundGPUs{}, make([]string, len(inv.GPUs))
	for i, g := range inv.GPUs {
		listed[i] = g.UUID
	}
	db.Read(b, &f.known, (*dbq.Queries).ActiveGPUs, host)
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		f.holders, err = q.HoldersOfUUIDs(ctx, host, listed)
		return err
	})
	return f
}

// gpuWrites is what is to be stored of a host's GPUs.
type gpuWrites struct {
	put    dbq.PutGPUsParams
	worse  []worseGPU
	listed []string          // all that are present
	free   map[string]id.GPU // new ones that no other host holds, by UUID
}

// worseGPU is a GPU whose health is worse than stored.
type worseGPU struct {
	id             id.GPU
	health, reason string
}

// judge decides about the GPUs of an inventory, and those that other hosts hold, too.
func (f *foundGPUs) judge(ctx context.Context, tx *db.Tx, host id.Host, inv *agentapi.Inventory) (*gpuWrites, error) {
	known, held := make(map[string]dbq.ActiveGPUsRow, len(f.known)), make(map[string]dbq.HoldersOfUUIDsRow, len(f.holders))
	for _, g := range f.known {
		known[g.UUID] = g
	}
	for _, h := range f.holders {
		held[h.UUID] = h
	}
	w := &gpuWrites{put: dbq.PutGPUsParams{HostID: host}, listed: []string{}, free: map[string]id.GPU{}}
	ids := make(map[string]id.GPU, len(inv.GPUs))
	for _, g := range parentsFirst(inv.GPUs) {
		old, standing := known[g.UUID], NotContested
		holder, taken := held[g.UUID]
		var err error
		switch {
		case !old.ID.IsZero():
			ids[g.UUID] = old.ID
			if taken && Contest(old.Contest) == Challenger { // without a holder, admins decide among challengers
				err = challengeAgain(ctx, tx, host, old.ID, holder)
			}
		case taken:
			ids[g.UUID] = id.New[id.GPU]()
			standing, err = contest(ctx, tx, host, holder)
		default:
			ids[g.UUID] = id.New[id.GPU]()
		}
		if err != nil {
			return nil, err
		}
		if old.ID.IsZero() && standing == NotContested {
			w.free[g.UUID] = ids[g.UUID]
		}
		if err := w.add(g, old, ids[g.UUID], ids[g.Parent], standing); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// add adds a GPU, which is old if the host has it already.
func (w *gpuWrites) add(g *agentapi.GPU, old dbq.ActiveGPUsRow, gpu, parent id.GPU, standing Contest) error {
	facts, err := json.Marshal(g)
	if err != nil {
		return err
	}
	health := g.Health
	if _, ok := badness[health]; !ok {
		health = Healthy
	}
	// An inventory can make a GPU's health worse but not better: only a health event can improve it.
	if !old.ID.IsZero() && badness[health] > badness[old.Health] {
		w.worse = append(w.worse, worseGPU{old.ID, health, text.Clip(g.HealthReason, 300)})
	}
	linked, gbps := nvlink(g)
	p := &w.put
	w.listed = append(w.listed, g.UUID)
	p.Ids, p.Uuids = append(p.Ids, uuids([]id.GPU{gpu})...), append(p.Uuids, g.UUID)
	p.Idxs, p.PCIBuses = append(p.Idxs, int32(g.Index)), append(p.PCIBuses, g.PCIBus)
	p.Models, p.Archs = append(p.Models, g.Model), append(p.Archs, g.Architecture)
	p.VramMbs, p.ComputeCaps = append(p.VramMbs, g.VRAMMB), append(p.ComputeCaps, g.ComputeCap)
	gen, measured := pcieGen(g)
	p.PcieGens, p.PcieMeasureds = append(p.PcieGens, gen), append(p.PcieMeasureds, measured)
	p.Nvlinks, p.NvlinkGbps = append(p.Nvlinks, linked), append(p.NvlinkGbps, gbps)
	p.PowerLimitsW = append(p.PowerLimitsW, watts(g.PowerLimitMW))
	p.PowerDefaultsW = append(p.PowerDefaultsW, watts(g.PowerDefaultMW))
	p.Facts, p.Healths = append(p.Facts, string(facts)), append(p.Healths, health)
	p.HealthReasons = append(p.HealthReasons, text.Clip(g.HealthReason, 300))
	p.InUses, p.Contests = append(p.InUses, inUse(g)), append(p.Contests, string(standing))
	p.Vendors, p.Kinds = append(p.Vendors, g.VendorOf()), append(p.Kinds, g.KindOf())
	p.Parents = append(p.Parents, pgtype.UUID{Bytes: parent.UUID(), Valid: true})
	p.AttachNames = append(p.AttachNames, text.Clip(g.AttachName, 100))
	p.RocmMaxes, p.Displays = append(p.RocmMaxes, text.Clip(g.Runtimes["rocm"], 20)), append(p.Displays, g.Display)
	p.Hives = append(p.Hives, g.Hive)
	return nil
}

// queueWrite queues the writes.
func (w *gpuWrites) queueWrite(b *pgx.Batch, host id.Host) {
	db.Write(b, (*dbq.Queries).PutGPUs, w.put)
	for _, g := range w.worse {
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error { return q.SetGPUHealth(ctx, g.health, g.reason, g.id) })
	}
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error { return q.VanishGPUs(ctx, host, w.listed) })
}
