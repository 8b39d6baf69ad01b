package host

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// Listed is an inventory that a host sent.
type Listed struct {
	Host      id.Host
	Inventory agentapi.Inventory
	Hash      []byte // see HashInventory
}

// Recorded is what became of one inventory of a set.
type Recorded struct {
	// Refused is why the inventory was not stored: a fault.
	Refused error
	// Alone is true if nothing was stored because the inventory must be stored without others, see RecordInventories.
	Alone bool
}

// Stored reports whether the inventory was stored.
func (r Recorded) Stored() bool { return r.Refused == nil && !r.Alone }

// RecordInventories stores the inventories of hosts with the same few statements however many there are. It adds new
// GPUs and marks missing ones as not present. The results are in the order of all.
//
// A GPU that another host has moves to this one if that host is gone (see holderGone). Otherwise it is refused with
// fault.Conflict if that host is of the same organisation, and becomes contested if it is not. As this locks what
// belongs to other hosts, and may fail, it is done only for an inventory that is stored without others. The same is
// true of other rare changes: the health of a GPU that became worse, and GPUs that an ephemeral host no longer has.
// In a set of several such inventories are left out, as is the second one of the same host.
func RecordInventories(ctx context.Context, tx *db.Tx, all []Listed) ([]Recorded, error) {
	sent := make([]*checked, len(all))
	hosts := make([]id.Host, len(all))
	for i, l := range all {
		sent[i] = check(l) // before the hosts are locked
		hosts[i] = l.Host
	}
	locked, err := Lock(ctx, tx, hosts)
	if err != nil {
		return nil, err
	}
	known := make(map[id.Host]Host, len(locked))
	for _, h := range locked {
		known[h.ID] = h
	}
	out := make([]Recorded, len(all))
	var good []*checked
	at := make(map[id.Host]int, len(all)) // of the first inventory of a host
	for i, c := range sent {
		h, found := known[c.host]
		first, again := at[c.host]
		switch {
		case !found:
			out[i].Refused = fault.New(fault.NotFound, "host not found")
		case h.State == Retired:
			out[i].Refused = fault.New(fault.Conflict, "The host is retired.")
		case h.Simulated != c.inv.Simulated:
			out[i].Refused = fault.New(fault.Conflict, "The host enrolled with simulated GPUs = %t and now says %t: "+
				"enrol it again.", h.Simulated, c.inv.Simulated)
		case c.bad != nil:
			out[i].Refused = c.bad
		case again && first != i:
			out[i].Alone = true
		default:
			c.ephemeral, at[c.host] = h.Ephemeral, i
			good = append(good, c)
		}
	}
	slices.SortFunc(good, func(a, b *checked) int { return a.host.Compare(b.host) })
	left, err := putInventories(ctx, tx, good, len(all) == 1)
	if err != nil {
		return nil, err
	}
	for _, c := range left {
		out[at[c.host]].Alone = true
	}
	return out, nil
}

// checked is an inventory whose values are possible and whose texts are clean, unless bad says otherwise.
type checked struct {
	host id.Host
	inv  *agentapi.Inventory
	// hash is that of the inventory as the host sent it; nil: the next inventory is stored whatever it is.
	hash      []byte
	bad       error
	ephemeral bool
}

// check checks an inventory.
func check(l Listed) *checked {
	inv := l.Inventory
	return &checked{host: l.Host, inv: &inv, hash: l.Hash, bad: checkInventory(&inv)}
}

// putInventories stores checked inventories, at most one of each host. The hosts must be locked or new. With alone,
// there is one inventory, and everything that it changes is stored. Otherwise those are returned, and not stored,
// that change what a set cannot store.
func putInventories(ctx context.Context, tx *db.Tx, all []*checked, alone bool) (left []*checked, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	var floors []floor
	b := &pgx.Batch{}
	queueFloors(b, &floors)
	found := queueFoundGPUs(b, all)
	if err := tx.Send(ctx, b); err != nil {
		return nil, fmt.Errorf("GPUs of %d hosts: %w", len(all), err)
	}
	found.index()
	if !alone {
		all, left = found.split(all)
		if len(all) == 0 {
			return left, nil
		}
	}
	w := &inventoryWrites{free: map[listing]id.GPU{}}
	for _, c := range all {
		c.inv.Problems = append(slices.Clip(c.inv.Problems), floorProblems(c.inv, floors)...)
		if err := w.addHost(c); err != nil {
			return nil, err
		}
		if err := w.judge(ctx, tx, found, c); err != nil {
			return nil, err
		}
	}
	b = &pgx.Batch{}
	w.queue(b)
	if err := tx.Send(ctx, b); db.IsUnique(err, "gpu_uuid_active") {
		return nil, refused(fault.Conflict, "gpu_active", "A GPU of this host was listed by another host at the same time: "+
			"send the inventory again.")
	} else if err != nil {
		return nil, fmt.Errorf("inventories of %d hosts: %w", len(all), err)
	}
	if len(w.free) > 0 {
		if err := defend(ctx, tx, w.free); err != nil {
			return nil, err
		}
	}
	if alone && all[0].ephemeral {
		return nil, removeMissing(ctx, tx, all[0].host)
	}
	return left, nil
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

// listing is a GPU in the inventory of a host.
type listing struct {
	host id.Host
	uuid string
}

// foundGPUs is what is stored of the GPUs of inventories.
type foundGPUs struct {
	known   []dbq.ActiveGPUsRow     // of the hosts
	holders []dbq.HoldersOfUUIDsRow // of what the hosts list, on other hosts

	of   map[id.Host][]dbq.ActiveGPUsRow
	old  map[listing]dbq.ActiveGPUsRow
	held map[listing]dbq.HoldersOfUUIDsRow
}

// queueFoundGPUs queues the reads of it. After them, index must be called.
func queueFoundGPUs(b *pgx.Batch, all []*checked) *foundGPUs {
	f := &foundGPUs{}
	var hosts, of []id.Host
	var listed []string
	for _, c := range all {
		hosts = append(hosts, c.host)
		for _, g := range c.inv.GPUs {
			of, listed = append(of, c.host), append(listed, g.UUID)
		}
	}
	db.Read(b, &f.known, (*dbq.Queries).ActiveGPUs, id.UUIDs(hosts...))
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		f.holders, err = q.HoldersOfUUIDs(ctx, id.UUIDs(of...), listed)
		return err
	})
	return f
}

func (f *foundGPUs) index() {
	f.of = map[id.Host][]dbq.ActiveGPUsRow{}
	f.old = make(map[listing]dbq.ActiveGPUsRow, len(f.known))
	f.held = make(map[listing]dbq.HoldersOfUUIDsRow, len(f.holders))
	for _, g := range f.known {
		f.of[g.HostID] = append(f.of[g.HostID], g)
		f.old[listing{g.HostID, g.UUID}] = g
	}
	for _, h := range f.holders {
		f.held[listing{h.ListedBy, h.UUID}] = h
	}
}

// split returns the inventories that can be stored in a set, and those that cannot.
func (f *foundGPUs) split(all []*checked) (together, alone []*checked) {
	listed := map[string]int{}
	for _, c := range all {
		for _, g := range c.inv.GPUs {
			listed[g.UUID]++
		}
	}
	for _, c := range all {
		if f.rare(c) || slices.ContainsFunc(c.inv.GPUs, func(g agentapi.GPU) bool { return listed[g.UUID] > 1 }) {
			alone = append(alone, c)
		} else {
			together = append(together, c)
		}
	}
	return together, alone
}

// rare reports whether an inventory changes something that a set cannot store: see RecordInventories.
func (f *foundGPUs) rare(c *checked) bool {
	same := 0
	for _, g := range c.inv.GPUs {
		of := listing{c.host, g.UUID}
		old, known := f.old[of]
		if _, taken := f.held[of]; taken || known && isWorse(&g, old) {
			return true
		}
		if known {
			same++
		}
	}
	return c.ephemeral && same < len(f.of[c.host]) ||
		slices.ContainsFunc(f.of[c.host], func(g dbq.ActiveGPUsRow) bool { return Contest(g.Contest) != NotContested })
}

// healthOf returns what a host says of the health of a GPU.
func healthOf(g *agentapi.GPU) string {
	if _, known := badness[g.Health]; known {
		return g.Health
	}
	return Healthy
}

// isWorse reports whether the health of a GPU is worse than stored. An inventory can make it worse but not better:
// only a health event can improve it.
func isWorse(g *agentapi.GPU, old dbq.ActiveGPUsRow) bool {
	return badness[healthOf(g)] > badness[old.Health]
}

// inventoryWrites is what is to be stored of inventories.
type inventoryWrites struct {
	inventories dbq.PutHostInventoriesParams
	hosts       dbq.SetHostInventoriesParams
	images      hostImages
	gpus        dbq.PutGPUsParams
	worse       []worseGPU
	missing     []id.GPU           // present before, and not listed
	free        map[listing]id.GPU // new ones that no other host holds
}

// worseGPU is a GPU whose health is worse than stored.
type worseGPU struct {
	id             id.GPU
	health, reason string
}

// addHost adds what is stored of the host itself.
func (w *inventoryWrites) addHost(c *checked) error {
	inv := c.inv
	raw, err := json.Marshal(inv)
	if err != nil {
		return err
	}
	host := id.UUIDs(c.host)
	i := &w.inventories
	i.Hosts, i.Inventories = append(i.Hosts, host...), append(i.Inventories, string(raw))
	i.Hashes, i.Gpus = append(i.Hashes, c.hash), append(i.Gpus, int32(len(inv.GPUs)))
	h, net := &w.hosts, rdma(inv)
	h.Hosts, h.BootIds = append(h.Hosts, host...), append(h.BootIds, text.Clip(inv.BootID, 64))
	h.CPUCores, h.RAMMbs = append(h.CPUCores, int32(inv.CPUCores)), append(h.RAMMbs, inv.RAMMB)
	h.DiskGbs, h.DiskLimiteds = append(h.DiskGbs, inv.DiskGB), append(h.DiskLimiteds, inv.DiskLimited)
	h.ScratchGbs, h.Runtimes = append(h.ScratchGbs, scratch(inv)), append(h.Runtimes, strings.Join(runtimes(inv), ","))
	h.Drivers, h.CudaMaxes = append(h.Drivers, text.Clip(inv.Driver, 40)), append(h.CudaMaxes, text.Clip(inv.CUDAMax, 20))
	h.MultiNodes, h.Blockeds = append(h.MultiNodes, inv.MultiNode), append(h.Blockeds, blocked(inv))
	h.RdmaGbps, h.RdmaRails = append(h.RdmaGbps, net.Gbps), append(h.RdmaRails, int32(net.Rails))
	h.RdmaLinks, h.RdmaIsolations = append(h.RdmaLinks, net.Link), append(h.RdmaIsolations, net.Isolation)
	h.RdmaNccls = append(h.RdmaNccls, net.NCCL)
	w.images.add(c.host, inv.Images)
	return nil
}

// judge decides about the GPUs of an inventory and adds them, and decides about those that other hosts hold, too.
func (w *inventoryWrites) judge(ctx context.Context, tx *db.Tx, found *foundGPUs, c *checked) error {
	ids := make(map[string]id.GPU, len(c.inv.GPUs))
	for _, g := range parentsFirst(c.inv.GPUs) {
		of, standing := listing{c.host, g.UUID}, NotContested
		old := found.old[of]
		holder, taken := found.held[of]
		var err error
		switch {
		case !old.ID.IsZero():
			ids[g.UUID] = old.ID
			if taken && Contest(old.Contest) == Challenger { // without a holder, admins decide among challengers
				err = challengeAgain(ctx, tx, c.host, old.ID, holder)
			}
		case taken:
			ids[g.UUID] = id.New[id.GPU]()
			standing, err = contest(ctx, tx, c.host, holder)
		default:
			ids[g.UUID] = id.New[id.GPU]()
		}
		if err != nil {
			return err
		}
		if old.ID.IsZero() && standing == NotContested {
			w.free[of] = ids[g.UUID]
		}
		if err := w.addGPU(c.host, g, old, ids[g.UUID], ids[g.Parent], standing); err != nil {
			return err
		}
	}
	for _, g := range found.of[c.host] {
		if _, listed := ids[g.UUID]; !listed && g.Present {
			w.missing = append(w.missing, g.ID)
		}
	}
	return nil
}

// addGPU adds a GPU, which is old if the host has it already.
func (w *inventoryWrites) addGPU(host id.Host, g *agentapi.GPU, old dbq.ActiveGPUsRow, gpu, parent id.GPU,
	standing Contest) error {
	facts, err := json.Marshal(g)
	if err != nil {
		return err
	}
	health := healthOf(g)
	if !old.ID.IsZero() && isWorse(g, old) {
		w.worse = append(w.worse, worseGPU{old.ID, health, text.Clip(g.HealthReason, 300)})
	}
	linked, gbps := nvlink(g)
	p := &w.gpus
	p.Hosts = append(p.Hosts, id.UUIDs(host)...)
	p.Ids, p.Uuids = append(p.Ids, id.UUIDs(gpu)...), append(p.Uuids, g.UUID)
	p.Idxs, p.PCIBuses = append(p.Idxs, int32(g.Index)), append(p.PCIBuses, g.PCIBus)
	p.Models, p.Archs = append(p.Models, g.Model), append(p.Archs, g.Architecture)
	p.VramMbs, p.ComputeCaps = append(p.VramMbs, g.VRAMMB), append(p.ComputeCaps, g.ComputeCap)
	gen, measured := pcieGen(g)
	p.PcieGens, p.PcieMeasureds = append(p.PcieGens, gen), append(p.PcieMeasureds, measured)
	p.Nvlinks, p.NvlinkGbps = append(p.Nvlinks, linked), append(p.NvlinkGbps, gbps)
	busbw, at := busbwNVLink(g, gbps, time.Now()) // for display
	p.BusbwNvlinks, p.BusbwNvlinkAts = append(p.BusbwNvlinks, busbw), append(p.BusbwNvlinkAts, at)
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

// queue queues the writes.
func (w *inventoryWrites) queue(b *pgx.Batch) {
	db.Write(b, (*dbq.Queries).PutHostInventories, w.inventories)
	db.Write(b, (*dbq.Queries).SetHostInventories, w.hosts)
	w.images.queue(b)
	if len(w.gpus.Ids) > 0 {
		db.Write(b, (*dbq.Queries).PutGPUs, w.gpus)
	}
	for _, g := range w.worse {
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error { return q.SetGPUHealth(ctx, g.health, g.reason, g.id) })
	}
	if len(w.missing) > 0 {
		db.Write(b, (*dbq.Queries).VanishGPUs, id.UUIDs(w.missing...))
	}
}

// defend makes those of hosts' GPUs the holders or incumbents that challengers list, too.
func defend(ctx context.Context, tx *db.Tx, gpus map[listing]id.GPU) error {
	all := slices.SortedFunc(maps.Keys(gpus), func(a, b listing) int {
		return cmp.Or(strings.Compare(a.uuid, b.uuid), a.host.Compare(b.host))
	})
	hosts, names := make([]id.Host, len(all)), make([]string, len(all))
	for i, l := range all {
		hosts[i], names[i] = l.host, l.uuid
	}
	challenged, err := tx.Q.ChallengedUUIDs(ctx, id.UUIDs(hosts...), names)
	if err != nil {
		return fmt.Errorf("GPUs that several hosts list: %w", err)
	}
	for _, c := range challenged {
		if _, err := tx.Q.DefendGPU(ctx, gpus[listing{c.HostID, c.UUID}]); err != nil {
			return fmt.Errorf("contest %s: %w", c.UUID, err)
		}
	}
	return nil
}
