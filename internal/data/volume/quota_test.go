package volume

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// What may be stored without a payment is one quota for a person; afterwards it grows with what was paid.
func TestQuotas_StoreWhatIsCovered(t *testing.T) {
	t.Parallel()
	q := quotas{price: 68_493, stored: 1000 * GB, freeStored: 10 * GB, freeRead: 10 * GB} // 0.05 a month
	at := time.Now()
	for name, c := range map[string]struct {
		s    standing
		more int64
		host bool
		ok   bool
	}{
		"nothing at all":                       {standing{}, 1, false, false},
		"a host of a cluster":                  {standing{}, GB, true, true},
		"a host, more than the quota":          {standing{}, 11 * GB, true, false},
		"credit":                               {standing{spendable: money.Unit}, 9 * GB, false, true},
		"credit, more than the quota":          {standing{spendable: 1000 * money.Unit}, 11 * GB, false, false},
		"credit that pays for less than a day": {standing{spendable: 10_000_000}, 9 * GB, false, false},
		"a card":                               {standing{card: true}, 9 * GB, false, true},
		"an address that is not verified":      {standing{spendable: money.Unit, unverified: true}, GB, false, false},
		"other organisations of the person":    {standing{spendable: money.Unit, freeStored: 10 * GB}, 1, false, false},
		"paid, and covered":                    {standing{paid: 5 * money.Unit}, 100 * GB, false, true},
		"paid, and not covered":                {standing{paid: 5 * money.Unit}, 110 * GB, true, false},
		"paid, and covered by credit":          {standing{paid: 1, spendable: 5 * money.Unit}, 100 * GB, false, true},
		"paid, and unpaid":                     {standing{paid: 5 * money.Unit, unpaidSince: &at}, 1, true, false},
		"an invoice":                           {standing{postpaid: true}, 900 * GB, true, true},
		"an invoice, over the limit":           {standing{postpaid: true, stored: 999 * GB}, 2 * GB, true, false},
	} {
		if err := q.store(c.s, c.more, !c.host); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	q.price = 0
	if err := q.store(standing{}, 900*GB, false); err != nil {
		t.Errorf("where storing is free: %v", err)
	}
}

// What people read is limited; what hosts read for clusters is not, except where storage is not paid for.
func TestQuotas_Reads(t *testing.T) {
	t.Parallel()
	q := quotas{freeRead: 10 * GB}
	now := time.Now()
	two, four := now.Add(-48*time.Hour), now.Add(-96*time.Hour)
	for name, c := range map[string]struct {
		s    standing
		host bool
		ok   bool
	}{
		"the quota":                    {standing{read: 10 * GB, freeRead: 10 * GB}, false, true},
		"more":                         {standing{read: GB, freeRead: 11 * GB}, false, false},
		"more, by hosts":               {standing{read: GB, freeRead: 11 * GB}, true, true},
		"paid":                         {standing{paid: 1, read: 10 * GB}, false, true},
		"paid, and stores little":      {standing{paid: 1, read: 11 * GB, stored: GB}, false, false},
		"paid, and stores much":        {standing{paid: 1, read: 1500 * GB, stored: 500 * GB}, false, true},
		"unpaid for two days":          {standing{paid: 1, unpaidSince: &two, stored: 1, readUnpaid: 2}, true, true},
		"unpaid for four days, a copy": {standing{paid: 1, unpaidSince: &four, stored: 2, readUnpaid: 2}, false, true},
		"unpaid for four days, more":   {standing{paid: 1, unpaidSince: &four, stored: 1, readUnpaid: 2}, true, false},
	} {
		c.s.now = now
		if err := q.read(c.s, c.host); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// person is a person's side of an upload.
type person struct {
	*agent
	session id.DataSession
}

func (w *world) uploader(vol id.Volume) (*person, error) {
	w.t.Helper()
	p := &person{agent: &agent{w: w, vol: vol}, session: id.New[id.DataSession]()}
	x, err := w.v.Transfers.Open(w.t.Context(), w.who, vol, NewTransfer{ID: p.session, Direction: Upload})
	if err == nil {
		p.keys, err = openKeys(w.Box(), w.domain(vol), w.sealed(vol))
	}
	p.head = x.HeadSeq
	return p, err
}

func (w *world) sealed(vol id.Volume) (key []byte) {
	w.t.Helper()
	w.Must(w.d.Pool.QueryRow(w.t.Context(), `SELECT key_sealed FROM data_domain d JOIN volume v ON v.domain_id = d.id
		WHERE v.id = $1`, vol).Scan(&key))
	return key
}

// store sends a pack of a tree with one file.
func (p *person) store(content []byte) (pack, error) {
	ctx := p.w.t.Context()
	r, err := p.w.v.Transfers.Reserve(ctx, p.w.who.Org, p.vol, p.session, 1)
	if err != nil {
		return pack{}, err
	}
	b, err := p.fill(r.First, map[string][]byte{"f": content})
	if err != nil {
		return b, err
	}
	sum := sha256.Sum256(b.body)
	u, err := p.w.v.Transfers.StorePack(ctx, p.w.who.Org, p.vol, p.session,
		agentapi.PackGrant{N: b.n, SHA256: sum[:], Bytes: int64(len(b.body))})
	if err == nil && put(p.w.t, u, b.body) != 200 {
		err = fmt.Errorf("not stored")
	}
	return b, err
}

func (w *world) billed() (bytes int64) {
	w.t.Helper()
	w.Must(w.d.Pool.QueryRow(w.t.Context(), `SELECT coalesce((SELECT bytes FROM data_level ORDER BY from_at DESC LIMIT 1), 0)`).
		Scan(&bytes))
	return bytes
}

func (w *world) sweep() {
	w.t.Helper()
	_, err := w.v.Collector.Sweep(w.t.Context())
	w.Must(err)
}

// A person stores nothing without credit. What an upload has stored is billed before it is committed, and an upload
// that is never committed ends after three days, whatever it reports; what it has sent is deleted, and not billed any
// more.
func TestUpload_IsBilledBeforeItsCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{PricePerGBHour: 68_493})
	vol := w.create("data")
	up, err := w.uploader(vol.ID)
	w.Must(err)
	if _, err := up.store(noise(1000)); !fault.Is(err, fault.QuotaExceeded) {
		t.Fatalf("stored without credit: %v", err)
	}
	w.Fund(w.who.Org, money.Unit)
	p, err := up.store(noise(1000))
	w.Must(err)
	sum := sha256.Sum256(p.body)
	grant := agentapi.PackGrant{N: p.n, SHA256: sum[:], Bytes: int64(len(p.body))}
	_, err = w.v.Transfers.StorePack(t.Context(), w.who.Org, vol.ID, up.session, grant) // a request that is always new
	w.Must(err)
	w.sweep()
	if n := w.billed(); n != int64(len(p.body)) {
		t.Fatalf("%d bytes are billed of %d that are stored", n, len(p.body))
	}
	w.Exec("UPDATE data_session SET opened_at = opened_at - interval '73 hours'")
	w.Exec("UPDATE data_pack SET url_until = url_until - interval '15 minutes'")
	err = w.v.Transfers.Report(t.Context(), w.who.Org, vol.ID, up.session, agentapi.VolumeReport{})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("an upload goes on after three days: %v", err)
	}
	w.sweep()
	if keys := w.objects(); len(keys) != 0 || w.billed() != 0 {
		t.Errorf("%d bytes are billed, the store has %v", w.billed(), keys)
	}
}

// A snapshot that is deleted and committed again, before the store has deleted its packs, is billed for the time
// between.
func TestDoomedPacks_AreBilledForTheTimeBetween(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{PricePerGBHour: 1_000_000_000_000}) // 1 MB costs 1.00 an hour
	w.Fund(w.who.Org, 1000*money.Unit)
	vol := w.create("data")
	_, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	big, err := a.snapshot(map[string][]byte{"f": noise(1_000_000)})
	w.Must(err)
	small, err := a.snapshot(map[string][]byte{"f": noise(100)})
	w.Must(err)
	const hours = 3
	for i := range int64(hours) {
		w.Must(w.v.Snapshots.Delete(t.Context(), w.who, vol.ID, 2*i+1)) // of big
		if s, err := w.v.Hosts.packs.limiter.standing(t.Context(), w.d.Q, w.who.Org); err != nil || s.stored < 1_000_000 {
			t.Fatalf("%d bytes count as stored while the store has all: %v", s.stored, err)
		}
		w.elapse(59 * time.Minute)
		w.Exec("UPDATE data_pack SET doomed_at = doomed_at - interval '59 minutes', " +
			"url_until = url_until - interval '59 minutes'")
		_, err := w.v.Meters.chargeDue(t.Context(), time.Now().Add(2*ChargeEvery))
		w.Must(err)
		w.sweep()
		w.Must(a.commit(id.New[id.Snapshot](), big))
		w.Must(a.commit(id.New[id.Snapshot](), small))
	}
	_, err = w.v.Meters.chargeDue(t.Context(), time.Now().Add(2*ChargeEvery))
	w.Must(err)
	var posted money.Nano
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT posted FROM data_meter").Scan(&posted))
	if least := hours * 59 * money.Unit / 60; posted < least || posted > least*11/10 {
		t.Errorf("%s are billed for %d hours, want %s", posted, hours, least)
	}
}

// A host that has a clone cannot make a snapshot of what the original has stored since, nor read it.
func TestCommit_NamesPacksOfItsSessionAndBaseOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	vol := w.create("data")
	_, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	honest := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(honest.open(agentapi.MountRW))
	first, err := honest.snapshot(map[string][]byte{"f": []byte("public")})
	w.Must(err)
	clone, _, err := w.v.Snapshots.Clone(t.Context(), w.who, vol.ID, 0, NewVolume{Name: "copy"}, idem.Request{})
	w.Must(err)
	secret, err := honest.snapshot(map[string][]byte{"f": []byte("secret")})
	w.Must(err)

	_, lease, err = w.rent(w.hosts[1], agentapi.MountRW, clone.ID)
	w.Must(err)
	evil := w.agent(w.hosts[1], lease, clone.ID)
	w.Must(evil.open(agentapi.MountRW))
	p, err := evil.build(map[string][]byte{"x": noise(10)})
	w.Must(err)
	snap := id.New[id.Snapshot]()
	u, err := evil.grant(snap, p)
	w.Must(err)
	put(t, u, p.body)
	if err := evil.commit(snap, p, secret.n); code(err) != agentapi.VolumeMissing {
		t.Fatalf("a commit of another volume's pack: %v", err)
	}
	w.Must(evil.commit(snap, p, first.n)) // which the clone's base has
	read := &agentapi.ReadPacks{Packs: []int64{first.n}}
	_, err = evil.send(agentapi.VolumeRequest{Op: agentapi.VolumeRead, Read: read})
	w.Must(err)
	read.Packs[0] = secret.n
	_, err = evil.send(agentapi.VolumeRequest{Op: agentapi.VolumeRead, Read: read})
	if code(err) != agentapi.VolumeNotFound {
		t.Fatalf("a read of another volume's pack: %v", err)
	}
}

// A set of packs is cut into runs that a base has, and others.
func TestApart(t *testing.T) {
	t.Parallel()
	set := manifest.NewPackSet(1, 2, 3, 5, 6, 7, 8, 9, 12)
	firsts, lasts, own := apart(set, manifest.NewPackSet(2, 6, 7, 9, 10, 11, 12, 13))
	if !slices.Equal(firsts, []int64{1, 2, 3, 5, 6, 8, 9, 12}) || !slices.Equal(lasts, []int64{1, 2, 3, 5, 7, 8, 9, 12}) ||
		!slices.Equal(own, []bool{true, false, true, true, false, true, false, false}) {
		t.Errorf("%v %v %v", firsts, lasts, own)
	}
}

// A host stores no more than the volume's size for each snapshot that is kept, whatever sizes it sends.
func TestHost_StoresNoMoreThanTheVolumeMayHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	vol := w.create("small")
	w.Exec("UPDATE volume SET size_limit = 12000 WHERE id = $1", vol.ID)
	_, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	_, err = a.snapshot(map[string][]byte{"f": noise(500)})
	w.Must(err)
	if _, err = a.snapshot(map[string][]byte{"f": noise(700_000)}); code(err) != agentapi.VolumeQuota {
		t.Errorf("700 kB in a volume of 12 kB: %v", err)
	}
}

// What people read is counted, in whole packs, over all organisations of a person that have paid nothing. Hosts are
// counted and go on.
func TestReads_AreCountedAndLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{FreeRead: 2500})
	vol := w.create("data")
	_, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	p, err := a.snapshot(map[string][]byte{"f": noise(1000)}) // its pack has less than 1,500 bytes
	w.Must(err)
	session := id.New[id.DataSession]()
	_, err = w.v.Transfers.Open(t.Context(), w.who, vol.ID, NewTransfer{ID: session, Direction: Download})
	w.Must(err)
	read := func() error {
		_, err := w.v.Transfers.ReadPack(t.Context(), w.who.Org, vol.ID, session, p.n)
		return err
	}
	w.Must(read())
	other := w.Org("other of the same person")
	for _, org := range []id.Org{other, w.who.Org} {
		w.Exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'owner')", org, w.who.User)
	}
	w.Must(w.v.Hosts.packs.limiter.serveBytes(t.Context(), other, 1000, false))
	if err := read(); !fault.Is(err, fault.QuotaExceeded) {
		t.Errorf("read more than the quota: %v", err)
	}
	if _, err := w.content(vol.ID, "f"); err != nil {
		t.Errorf("a small file within the quota: %v", err)
	}
	for range 3 {
		_, err := a.send(agentapi.VolumeRequest{Op: agentapi.VolumeRead, Read: &agentapi.ReadPacks{Packs: []int64{p.n}}})
		w.Must(err)
	}
	var people, hosts int64
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT bytes, host_bytes FROM data_served WHERE org_id = $1", w.who.Org).
		Scan(&people, &hosts))
	if n := int64(len(p.body)); people != n || hosts != 3*n {
		t.Errorf("%d bytes counted for people, %d for hosts, of packs of %d", people, hosts, n)
	}
}
