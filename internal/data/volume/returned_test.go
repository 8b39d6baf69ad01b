package volume

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/id"
)

// returns is how many hosts return in TestReturnedHostsAreRefused.
const returns = 100

// returned is a host whose run of a volume is over and that does not know. It has built a snapshot, late.
type returned struct {
	*agent
	mode     string
	snap     id.Snapshot
	late     pack
	url      agentapi.PackURL // to store late; no URL: it was not granted
	early    *pack            // of a snapshot that it has committed; nil: none
	earlyURL agentapi.PackURL
	// The host after it opens the volume, commits a file, or commits something that names these packs.
	next  func() (*agent, error)
	write func(content []byte) error
	refer func(packs ...int64) error
}

// Hosts that were lost, replaced, restarted or too slow return and go on as if nothing had been, each where it was:
// with numbers reserved, a pack granted, stored, or an earlier snapshot committed. Whatever they send is refused, 100
// of 100, once the next host has begun; of a run that is fenced before that, it is refused before, too. What they
// upload late by an old URL changes no pack, is never part of a snapshot, and is collected.
func TestReturnedHostsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{Grace: time.Millisecond})
	refusals, uploads := 0, 0
	want := map[id.Volume]string{}
	for i := range returns {
		content := noise(100)
		vol := w.create(fmt.Sprintf("data-%d", i))
		old := w.returnedHost(vol.ID, i)
		if old.mode == agentapi.MountRW && i%8 < 4 {
			refusals += old.refused(t, i)
		}
		if _, err := old.next(); err != nil {
			t.Fatalf("%d: the next host: %v", i, err)
		}
		uploads += old.uploads(t, i)
		refusals += old.refused(t, i)
		if old.url.URL != "" {
			if err := old.refer(old.late.n); code(err) != agentapi.VolumeMissing {
				t.Errorf("%d: the next host commits the old one's pack: %v", i, err)
			}
		}
		w.Must(old.write(content))
		want[vol.ID] = string(content)
	}
	// When the URLs have expired, all that came late is collected, and nothing else.
	w.Exec("UPDATE data_pack SET url_until = clock_timestamp() - interval '1 second'")
	for range 2 {
		_, err := w.v.Collector.Sweep(t.Context())
		w.Must(err)
		time.Sleep(5 * time.Millisecond)
	}
	var left int
	w.Must(w.d.Pool.QueryRow(t.Context(), `SELECT count(*) FROM data_pack p JOIN data_session x ON
		x.id = p.session_id WHERE p.state <> 'live' AND x.closed_at IS NOT NULL`).Scan(&left))
	if left != 0 {
		t.Errorf("%d packs that came late are left", left)
	}
	for vol, content := range want {
		if got, err := w.content(vol, "f"); err != nil || got != content {
			t.Errorf("%s reads back as %d bytes: %v", vol, len(got), err)
		}
	}
	t.Logf("%d hosts returned: %d requests refused, %d late uploads without effect", returns, refusals, uploads)
}

// returnedHost gives a volume to a host, lets it go so far, and ends its run.
func (w *world) returnedHost(vol id.Volume, i int) *returned {
	w.t.Helper()
	if i%4 == 3 {
		return w.returnedRank(vol, i)
	}
	cl, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol)
	w.Must(err)
	old := &returned{agent: w.agent(w.hosts[0], lease, vol), mode: agentapi.MountRW}
	w.Must(old.open(old.mode))
	old.works(i, func(p pack) error { return old.commit(id.New[id.Snapshot](), p) })
	next := w.agent(w.hosts[1], lease, vol)
	switch i % 4 {
	case 0: // the host is lost, and the volume rented elsewhere
		w.release(cl)
		w.Exec("UPDATE node SET state = 'lost' WHERE cluster_id = $1", cl)
	case 1: // the cluster was released, and its host has not stored the end in time
		w.release(cl)
		w.Exec("UPDATE cluster SET ended_at = ended_at - interval '31 minutes' WHERE id = $1", cl)
		w.Exec("UPDATE lease SET ended_at = ended_at - interval '31 minutes' WHERE cluster_id = $1", cl)
	case 2: // the same host starts again, and a process of the run before goes on
		w.Exec("UPDATE lease SET epoch = 2 WHERE id = $1", lease)
		next = w.agent(w.hosts[0], lease, vol)
		next.ref.Epoch = 2
	}
	if i%4 < 2 {
		_, lease, err = w.rent(w.hosts[1], agentapi.MountRW, vol)
		w.Must(err)
		next = w.agent(w.hosts[1], lease, vol)
	}
	old.next = func() (*agent, error) { return next, next.open(agentapi.MountRW) }
	old.write = func(content []byte) error {
		_, err := next.snapshot(map[string][]byte{"f": content})
		return err
	}
	old.refer = func(packs ...int64) error {
		snap := id.New[id.Snapshot]()
		p, err := next.build(map[string][]byte{"g": noise(10)})
		if err != nil {
			return err
		}
		u, err := next.grant(snap, p)
		if err != nil {
			return err
		}
		put(w.t, u, p.body)
		return next.commit(snap, p, packs...)
	}
	return old
}

// returnedRank is returnedHost for rank 1 of a volume that all ranks write: its host is replaced.
func (w *world) returnedRank(vol id.Volume, i int) *returned {
	w.t.Helper()
	r := &ranks{world: w, vol: vol}
	r.start(2)
	zero, one := r.agents[0], r.agents[1]
	old := &returned{agent: one.agent, mode: agentapi.MountRanks}
	old.works(i, func(p pack) error {
		if _, _, err := zero.checkpoint("a", tree{"zero": noise(10)}); err != nil {
			return err
		}
		q := agentapi.PrepareVolume{CommitVolume: *one.request(id.New[id.Snapshot](), p), AllRanks: true}
		q.Label = "a"
		answer, err := one.send(q)
		if err == nil && answer.Seq == 0 {
			err = fmt.Errorf("waits for %v", answer.Missing)
		}
		return err
	})
	w.Exec("UPDATE lease SET ended_at = clock_timestamp() WHERE id = $1", leaseID(one))
	w.Exec("UPDATE lease SET epoch = 2 WHERE id = $1", leaseID(zero))
	w.Exec("UPDATE node SET epoch = 2 WHERE cluster_id = $1", r.cluster)
	zero.ref.Epoch = 2
	next := r.addRank(1, w.hosts[0], 2)
	old.next = func() (*agent, error) {
		r.agents = []*rank{zero, next}
		r.open()
		return next.agent, nil
	}
	old.write = func(content []byte) error {
		if _, _, err := zero.checkpoint("b", tree{"zero": noise(10)}); err != nil {
			return err
		}
		_, p, err := next.checkpoint("b", tree{"f": content})
		if err == nil && p.Seq == 0 {
			err = fmt.Errorf("waits for %v", p.Missing)
		}
		return err
	}
	old.refer = func(packs ...int64) error {
		snap := id.New[id.Snapshot]()
		p, err := next.build(next.files)
		if err != nil {
			return err
		}
		u, err := next.grant(snap, p)
		if err != nil {
			return err
		}
		put(w.t, u, p.body)
		_, err = next.send(agentapi.PrepareVolume{CommitVolume: *next.request(snap, p, packs...)})
		return err
	}
	return old
}

// works lets a host work on its volume as long as the run lasts. How far it comes depends on i.
func (o *returned) works(i int, commit func(pack) error) {
	w := o.w
	w.t.Helper()
	stage := i / 4 % 5
	if stage >= 3 { // it has committed a snapshot before
		p, err := o.build(map[string][]byte{"old": noise(100)})
		w.Must(err)
		u, err := o.grant(id.New[id.Snapshot](), p)
		w.Must(err)
		if status := put(w.t, u, p.body); status != http.StatusOK {
			w.t.Fatalf("PUT: %d", status)
		}
		w.Must(commit(p))
		o.early, o.earlyURL = &p, u
	}
	var err error
	o.snap = id.New[id.Snapshot]()
	o.late, err = o.build(map[string][]byte{"late": noise(100)})
	w.Must(err)
	if stage == 0 {
		return
	}
	o.url, err = o.grant(o.snap, o.late)
	w.Must(err)
	if stage%2 == 0 {
		put(w.t, o.url, o.late.body)
	}
}

// refused sends everything that a host can, and returns how many requests that were, all refused.
func (o *returned) refused(t *testing.T, i int) (n int) {
	t.Helper()
	c := o.request(o.snap, o.late)
	labelled := *c
	labelled.Label = "b"
	sum := sha256.Sum256(o.late.body)
	for what, q := range map[string]agentapi.VolumeRequest{
		agentapi.VolumeOpen:    {Open: &agentapi.OpenVolume{Mode: o.mode}},
		agentapi.VolumeReserve: {Reserve: &agentapi.ReservePacks{Count: 1}},
		agentapi.VolumeGrant: {Grant: &agentapi.GrantPacks{Snapshot: o.snap.String(),
			Packs: []agentapi.PackGrant{{N: o.late.n, SHA256: sum[:], Bytes: int64(len(o.late.body))}}}},
		agentapi.VolumeCommit:  {Commit: c},
		agentapi.VolumePrepare: {Prepare: &agentapi.PrepareVolume{CommitVolume: labelled, AllRanks: true}},
		agentapi.VolumeRead:    {Read: &agentapi.ReadPacks{Packs: []int64{o.late.n}}},
		agentapi.VolumeReports: {Report: &agentapi.VolumeReport{PendingBytes: 1}},
		agentapi.VolumeClose:   {Close: &agentapi.CloseVolume{}},
	} {
		q.Op = what
		if _, err := o.send(q); code(err) != agentapi.VolumeFenced {
			t.Errorf("%d: %s of a host that returned: %v", i, what, err)
		}
		n++
	}
	return n
}

// uploads sends packs by the old URLs: other bytes, and those that were granted. It returns how many.
func (o *returned) uploads(t *testing.T, i int) (n int) {
	t.Helper()
	w := o.w
	var domain id.DataDomain
	w.Must(w.d.Pool.QueryRow(t.Context(), "SELECT domain_id FROM volume WHERE id = $1", o.vol).Scan(&domain))
	upload := func(u agentapi.PackURL, body []byte, want ...int) {
		t.Helper()
		status := put(t, u, body)
		for _, s := range want {
			if status == s {
				n++
				return
			}
		}
		t.Errorf("%d: a late upload: %d, want %v", i, status, want)
	}
	whole := func(p pack) {
		t.Helper()
		o, err := w.store.Head(t.Context(), store.Key(domain, p.n))
		if err != nil || o.Sum != sha256.Sum256(p.body) {
			t.Errorf("%d: pack %d was changed: %v", i, p.n, err)
		}
	}
	if o.url.URL != "" {
		other := bytes.Clone(o.late.body)
		other[0] ^= 1
		upload(o.url, other, http.StatusBadRequest, http.StatusPreconditionFailed)
		upload(o.url, o.late.body[1:], http.StatusBadRequest, http.StatusPreconditionFailed)
		upload(o.url, o.late.body, http.StatusOK, http.StatusPreconditionFailed)
		whole(o.late)
		// A URL whose time is over stores nothing, and none is without a checksum.
		past, err := w.store.SignPut(t.Context(), store.Key(domain, 1_000_000), sha256.Sum256(other), int64(len(other)),
			time.Now().Add(-time.Second))
		w.Must(err)
		upload(agentapi.PackURL{Method: past.Method, URL: past.URL, Header: past.Header}, other, http.StatusForbidden)
	}
	if o.early != nil {
		other := bytes.Clone(o.early.body)
		other[0] ^= 1
		upload(o.earlyURL, other, http.StatusBadRequest, http.StatusPreconditionFailed)
		upload(o.earlyURL, o.early.body, http.StatusPreconditionFailed)
		whole(*o.early)
	}
	return n
}
