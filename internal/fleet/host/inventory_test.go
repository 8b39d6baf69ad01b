package host_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// An inventory's images replace those of the one before; what is none is left out.
func TestInventoryNamesImages(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	inv := fleettest.Inventory(1)
	h, err := enroll(t, d, fleettest.Policy, fleettest.NewAgent(t).Request(t, fleettest.Origin,
		fleettest.Token(t, d, org, user, ""), inv))
	if err != nil {
		t.Fatal(err)
	}
	record := func(images ...agentapi.CachedImage) {
		t.Helper()
		inv.Images = images
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return fleettest.RecordInventory(ctx, tx, h.ID,
				inv)
		}); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(ref string) bool {
		t.Helper()
		ids, err := d.Q.HostsWithImage(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		return len(ids) == 1 && ids[0] == h.ID
	}
	record(agentapi.CachedImage{
		Ref:    "a:1",
		Digest: "sha256:1",
	}, agentapi.CachedImage{Ref: "b:1", Digest: "sha256:2"}, agentapi.CachedImage{Ref: "b:1", Digest: "sha256:3"},
		agentapi.CachedImage{Ref: "c:1", Digest: "nonsense"})
	if !holds("a:1") || !holds("b:1") || holds("c:1") {
		t.Error("not as told first")
	}
	record(agentapi.CachedImage{Ref: "b:1", Digest: "sha256:3"})
	if holds("a:1") || !holds("b:1") {
		t.Error("not as told then")
	}
	record()
	if holds("b:1") {
		t.Error("still there")
	}
}

func TestInventoryNeverDeletesAndNeverHeals(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	a := fleettest.NewAgent(t)
	inv := fleettest.Inventory(2)
	h, err := enroll(t, d, fleettest.Policy, a.Request(t, fleettest.Origin, fleettest.Token(t, d, org, user, ""), inv))
	if err != nil {
		t.Fatal(err)
	}
	record := func(inv agentapi.Inventory) error {
		return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return fleettest.RecordInventory(ctx, tx, h.ID,
				inv)
		})
	}
	type state struct {
		Present bool
		Health  string
	}
	now := func() []state {
		t.Helper()
		got, err := host.New(d, nil).Get(t.Context(), account.Principal{Org: org}, h.ID)
		if err != nil {
			t.Fatal(err)
		}
		var out []state
		for _, g := range got.GPUs {
			out = append(out, state{g.Present, g.Health})
		}
		return out
	}
	one := inv
	one.GPUs = inv.GPUs[:1]
	one.GPUs[0].Health = host.Quarantined
	if err := record(one); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]state{{true, host.Quarantined}, {false, host.Healthy}}, now()); diff != "" {
		t.Error(diff)
	}
	inv.GPUs[0].Health = host.Healthy
	inv.Problems = []agentapi.Problem{{Code: "disk", Severity: "bad", Cause: "the disk is full"}}
	if err := record(inv); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]state{{true, host.Quarantined}, {true, host.Healthy}}, now()); diff != "" {
		t.Error(diff)
	}
	if got, err := host.Read(t.Context(), d.Q, h.ID); err != nil || got.Blocked != "the disk is full" {
		t.Errorf("blocked %q, %v", got.Blocked, err)
	}
	inv.Simulated = false
	if err := record(inv); !fault.Is(err, fault.Conflict) {
		t.Errorf("simulated GPUs became real: %v", err)
	}
}

func TestHealthIsTakenOnceInAnyOrder(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	a := fleettest.NewAgent(t)
	inv := fleettest.Inventory(1)
	h, err := enroll(t, d, fleettest.Policy, a.Request(t, fleettest.Origin, fleettest.Token(t, d, org, user, ""), inv))
	if err != nil {
		t.Fatal(err)
	}
	event := func(seq uint64, kind, state string) agentapi.HealthEvent {
		return agentapi.HealthEvent{
			Seq:    seq,
			GPU:    inv.GPUs[0].UUID,
			Kind:   kind,
			Xid:    79,
			State:  state,
			BootID: "boot",
			BootMS: 1000,
		}
	}
	record := func(want uint64, events ...agentapi.HealthEvent) {
		t.Helper()
		s := agentapi.Sync{BootID: "boot", BootMS: 61_000, Health: events}
		got, err := host.NewAgents(d, nil).RecordHealth(t.Context(), h.ID, s)
		if got != want {
			t.Errorf("acknowledged %d, want %d", got, want)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	health := func() string {
		got, err := host.New(d, nil).Get(t.Context(), account.Principal{Org: org}, h.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got.GPUs[0].Health
	}
	record(2, event(2, "xid", host.Quarantined))
	record(1, event(1, "ecc", host.Suspect)) // late
	if health() != host.Quarantined {
		t.Errorf("a late event changed health to %s", health())
	}
	record(3, event(3, "recovered", host.Healthy), event(2, "xid", host.Quarantined)) // one of them again
	if health() != host.Healthy {
		t.Errorf("requalified, yet %s", health())
	}
	foreign := event(9, "xid", host.Quarantined)
	foreign.GPU = "GPU-of-somebody-else"
	record(9, foreign)
	var n int
	var ago time.Duration
	if err := d.Pool.QueryRow(t.Context(), "SELECT count(*), max(clock_timestamp() - at) FROM gpu_health").Scan(&n,
		&ago); err != nil || n != 3 || ago < time.Minute || ago > 2*time.Minute {
		t.Errorf("%d events, oldest %s ago, %v", n, ago, err)
	}
}

func TestTelemetryHistory(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	gpus := []id.GPU{id.New[id.GPU](), id.New[id.GPU]()}
	start := time.Now().UTC().Truncate(24 * time.Hour).Add(4 * time.Minute)
	at := func(s int) host.Sample {
		return host.Sample{At: start.Add(time.Duration(s) * time.Second), Util: s, MemMB: 1000 + s, PowerW: 300, TempC: -1}
	}
	for _, batch := range [][]host.Series{
		{{gpus[0], []host.Sample{at(0), at(10), at(50), at(70)}}, {gpus[1], []host.Sample{at(0)}}},
		{{gpus[0], []host.Sample{at(40), at(20)}}},
	} {
		if err := host.NewAgents(d, nil).AppendTelemetry(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		// Rows that were there before the day had a partition move into it.
		if err := host.TelemetryPartitions(t.Context(), d, 48*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	read := func(step time.Duration) []host.Series {
		t.Helper()
		got, err := host.Telemetry(t.Context(), d.Q, gpus, start, start.Add(60*time.Second), step)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if diff := cmp.Diff([]host.Series{
		{gpus[0], []host.Sample{at(0), at(10), at(20), at(40), at(50)}}, {gpus[1], []host.Sample{at(0)}},
	}, read(0), cmp.Comparer(func(a, b id.GPU) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]host.Sample{at(0), at(20), at(40)}, read(20 * time.Second)[0].Samples); diff != "" {
		t.Error(diff)
	}
	var inDefault, partitions, rows int
	if err := d.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM telemetry_default),
		(SELECT count(*) FROM pg_inherits WHERE inhparent = 'telemetry'::regclass), (SELECT count(*) FROM
		telemetry)`).Scan(&inDefault, &partitions, &rows); err != nil || inDefault != 0 || partitions != 5 || rows != 3 {
		t.Errorf("%d rows in the default partition, %d partitions, %d rows: %v", inDefault, partitions, rows, err)
	}
	if _, err := d.Pool.Exec(t.Context(), "CREATE TABLE telemetry_20200101 PARTITION OF telemetry FOR VALUES FROM "+
		"('2020-01-01') TO ('2020-01-02')"); err != nil {
		t.Fatal(err)
	}
	if err := host.TelemetryPartitions(t.Context(), d, 48*time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := d.Pool.QueryRow(t.Context(),
		"SELECT count(*) FROM pg_inherits WHERE inhparent = 'telemetry'::regclass").Scan(&partitions); err != nil ||
		partitions != 5 {
		t.Errorf("an old partition is kept: %d, %v", partitions, err)
	}
}

// A GPU that its owner uses is not rented out until an inventory says that it is free. Nothing else frees it.
func TestAGPUItsOwnerUsesIsNotClaimed(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	inv := fleettest.Inventory(2)
	h, err := enroll(t, d, fleettest.Policy, fleettest.NewAgent(t).Request(t, fleettest.Origin,
		fleettest.Token(t, d, org, user, ""), inv))
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := host.GPUsByUUID(t.Context(), d.Q, h.ID)
	if err != nil {
		t.Fatal(err)
	}
	use := func(by string) {
		t.Helper()
		inv.GPUs[0].InUse = by
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return fleettest.RecordInventory(ctx, tx, h.ID,
				inv)
		}); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(i int) error {
		return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if _, err := host.Lock(ctx, tx, []id.Host{h.ID}); err != nil {
				return err
			}
			gpu := host.GPURef{Host: h.ID, GPU: gpus[inv.GPUs[i].UUID]}
			return fleettest.Claim(ctx, tx, host.ForLease, uuid.New(), []host.GPURef{gpu}, nil)
		})
	}
	use("Xorg, 412 MiB")
	if err := claim(0); !errors.Is(err, host.ErrTaken) {
		t.Errorf("claimed under its owner: %v", err)
	}
	if err := claim(1); err != nil {
		t.Errorf("the one beside it: %v", err)
	}
	got, err := host.New(d, nil).Get(t.Context(), account.Principal{Org: org}, h.ID)
	if err != nil || got.GPUs[0].InUse != "Xorg, 412 MiB" || got.GPUs[0].Health != host.Healthy ||
		got.GPUs[1].InUse != "" || got.Unsellable(time.Now()) == "Xorg, 412 MiB" {
		t.Errorf("%+v, %v", got.GPUs, err)
	}
	use("")
	if err := claim(0); err != nil {
		t.Errorf("free again: %v", err)
	}
}

func TestInventory_OutOfRangeNamesTheField(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	h := fleettest.Enroll(t, d, org, user, 1).Host
	for field, spoil := range map[string]func(*agentapi.Inventory){
		"cpu_cores":  func(i *agentapi.Inventory) { i.CPUCores = 0 },
		"ram_mb":     func(i *agentapi.Inventory) { i.RAMMB = -1 },
		"disk_gb":    func(i *agentapi.Inventory) { i.DiskGB = 1 << 40 },
		"scratch_gb": func(i *agentapi.Inventory) { i.ScratchGB = -1 },
	} {
		inv := fleettest.Inventory(1)
		spoil(&inv)
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return fleettest.RecordInventory(ctx, tx, h, inv)
		})
		if f := fault.From(err); f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Location != field {
			t.Errorf("%s: %+v", field, f)
		}
	}
}

// A new inventory costs as many statements for eight GPUs as for one, and does not write those again that are as they
// were.
func TestInventory_ItsStatementsDoNotDependOnItsGPUs(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	org, user := fleettest.Org(t, d)
	record := func(h id.Host, inv agentapi.Inventory) int64 {
		t.Helper()
		before := k.Statements.Load()
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return fleettest.RecordInventory(ctx, tx, h, inv)
		})
		if err != nil {
			t.Fatal(err)
		}
		return k.Statements.Load() - before
	}
	versions := func(h id.Host) (out []string) {
		t.Helper()
		rows, err := d.Pool.Query(t.Context(),
			"SELECT uuid || xmin::text FROM gpu WHERE host_id = $1 AND present ORDER BY uuid", h)
		if err == nil {
			out, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	var added, changed [2]int64
	for i, n := range []int{1, 8} {
		h := fleettest.Enroll(t, d, org, user, n).Host
		inv := fleettest.Inventory(n) // other GPUs than those it enrolled with
		added[i] = record(h, inv)
		was := versions(h)
		if len(was) != n {
			t.Fatalf("%d GPUs are present", len(was))
		}
		inv.DiskGB++
		changed[i] = record(h, inv)
		if diff := cmp.Diff(was, versions(h)); diff != "" {
			t.Errorf("GPUs that are as they were are written again: %s", diff)
		}
		for i := range inv.GPUs {
			inv.GPUs[i].VRAMMB++
		}
		record(h, inv)
		if got := versions(h); cmp.Equal(was, got) {
			t.Errorf("other GPUs are not written: %v", got)
		}
	}
	if added[0] != added[1] || changed[0] != changed[1] {
		t.Errorf("statements for one GPU and for eight: %d and %d for new ones, %d and %d for known ones",
			added[0], added[1], changed[0], changed[1])
	}
}
