package volume

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// world is volumes on a database and a store in a folder that is served over HTTP.
type world struct {
	*fleettest.World
	t     testing.TB
	d     *db.DB
	cfg   Config
	v     *Volumes
	store *store.Folder
	who   account.Principal
	hosts []id.Host
}

// serveFrom makes the volumes again, on a store, as a restart of the server does.
func (w *world) serveFrom(s store.Store) { w.v = New(w.d, s, w.cfg) }

func newWorld(t testing.TB, cfg Config) *world {
	t.Helper()
	d := dbtest.New(t)
	w := &world{World: fleettest.New(t, d), t: t, d: d}
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	f, err := store.OpenFolder(t.TempDir(), srv.URL, bytes.Repeat([]byte{7}, 32))
	w.Must(err)
	mux.Handle(store.SignedPath, f.Handler())
	w.store = f
	cfg.Box, cfg.Currency = w.Box(), "USD"
	w.cfg = cfg
	w.serveFrom(f)
	w.who = w.SignUp("renter")
	operator := w.SignUp("operator")
	for range 2 {
		agent := fleettest.Enroll(t, d, operator.Org, operator.User, 1)
		w.hosts = append(w.hosts, agent.Host)
	}
	return w
}

func (w *world) create(name string) Volume {
	w.t.Helper()
	vol, _, err := w.v.Catalog.Create(w.t.Context(), w.who, NewVolume{Name: name, SizeGB: 10}, idem.Request{})
	w.Must(err)
	return vol
}

// rent gives volumes to a new cluster on a host, as cluster.Rent does.
func (w *world) rent(host id.Host, mode string, vols ...id.Volume) (id.Cluster, id.Lease, error) {
	w.t.Helper()
	cl, lease := fleettest.Lease(w.t, w.d, host, w.who.Org)
	var mounts []Mount
	for i, v := range vols {
		mounts = append(mounts, Mount{Volume: v, Mode: mode, At: fmt.Sprintf("mounts[%d].volume", i)})
	}
	err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		b := &pgx.Batch{}
		c := QueueClaims(b, w.who.Org, mounts)
		if err := tx.Send(ctx, b); err != nil {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		if err := c.Decide(now); err != nil {
			return err
		}
		b = &pgx.Batch{}
		c.QueueWrite(b, cl)
		return tx.Send(ctx, b)
	})
	return cl, lease, err
}

// release ends a cluster, as its release does.
func (w *world) release(cl id.Cluster) {
	w.t.Helper()
	w.Exec("UPDATE cluster SET state = 'released', ended_at = clock_timestamp() WHERE id = $1", cl)
	w.Exec("UPDATE lease SET ended_at = clock_timestamp() WHERE cluster_id = $1", cl)
}

// agent is a host's side of one mount.
type agent struct {
	w       *world
	host    id.Host
	ref     agentapi.LeaseRef
	vol     id.Volume
	session string
	keys    *chunk.Keys
	base    *agentapi.Snapshot
	head    int64
}

func (w *world) agent(host id.Host, lease id.Lease, vol id.Volume) *agent {
	return &agent{w: w, host: host, ref: agentapi.LeaseRef{Lease: lease.String(), Epoch: 1}, vol: vol}
}

func (a *agent) send(r agentapi.VolumeRequest) (agentapi.VolumeReply, error) {
	r.LeaseRef, r.Volume, r.Session = a.ref, a.vol.String(), a.session
	reply := a.w.v.Hosts.Serve(a.w.t.Context(), a.host, r)
	if reply.Error != nil {
		return reply, reply.Error
	}
	return reply, nil
}

func (a *agent) open(mode string) error {
	r, err := a.send(agentapi.VolumeRequest{Op: agentapi.VolumeOpen, Open: &agentapi.OpenVolume{Mode: mode}})
	if err != nil {
		return err
	}
	a.session, a.base, a.head = r.Open.Session, r.Open.Base, r.Open.HeadSeq
	if a.keys == nil {
		var sealed []byte
		var domain id.DataDomain
		err := a.w.d.Pool.QueryRow(a.w.t.Context(), `SELECT d.id, d.key_sealed FROM data_domain d JOIN volume v ON
			v.domain_id = d.id WHERE v.id = $1`, a.vol).Scan(&domain, &sealed)
		if err != nil {
			return err
		}
		a.keys, err = openKeys(a.w.Box(), domain, sealed)
		return err
	}
	return nil
}

// pack is what a snapshot of some files is made of.
type pack struct {
	n    int64
	body []byte
	root manifest.Ref
}

// build makes one pack that has a whole tree.
func (a *agent) build(files map[string][]byte) (pack, error) {
	r, err := a.send(agentapi.VolumeRequest{Op: agentapi.VolumeReserve, Reserve: &agentapi.ReservePacks{Count: 1}})
	if err != nil {
		return pack{}, err
	}
	return a.fill(r.Reserve.First, files)
}

// fill makes one pack with this number that has a whole tree.
func (a *agent) fill(n int64, files map[string][]byte) (p pack, err error) {
	p.n = n
	var packer chunk.Packer
	put := func(b []byte) (manifest.Ref, error) {
		cid := a.keys.ID(b)
		blob, err := a.keys.Seal(nil, cid, b)
		if err != nil {
			return manifest.Ref{}, err
		}
		e, err := packer.Add(cid, blob)
		return manifest.Ref{ID: cid, Pack: p.n, Offset: e.Offset, Length: e.Length, Size: uint32(len(b))}, err
	}
	w := manifest.Writer{Put: put}
	var entries []manifest.Entry
	for name, content := range files {
		e := manifest.Entry{Name: name, Kind: manifest.File, Mode: 0o644, Size: int64(len(content))}
		if len(content) > 0 {
			ref, err := put(content)
			if err != nil {
				return p, err
			}
			e.Body.Refs = []manifest.Ref{ref}
		}
		entries = append(entries, e)
	}
	root := manifest.Root{Dir: manifest.Entry{Kind: manifest.Dir, Mode: 0o755}, Files: int64(len(files))}
	if err := w.Dir(&root.Dir, entries); err != nil {
		return p, err
	}
	if p.root, err = w.Root(root); err != nil {
		return p, err
	}
	p.body, err = packer.Finish(a.keys)
	return p, err
}

func (a *agent) grant(snap id.Snapshot, p pack) (agentapi.PackURL, error) {
	sum := sha256.Sum256(p.body)
	r, err := a.send(agentapi.VolumeRequest{Op: agentapi.VolumeGrant, Grant: &agentapi.GrantPacks{
		Snapshot: snap.String(), Packs: []agentapi.PackGrant{{N: p.n, SHA256: sum[:], Bytes: int64(len(p.body))}},
	}})
	if err != nil {
		return agentapi.PackURL{}, err
	}
	return r.Grant.Packs[0], nil
}

// put sends a body as a signed request says and returns the status.
func put(t testing.TB, u agentapi.PackURL, body []byte) int {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), u.Method, u.URL, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range u.Header {
		q.Header.Set(k, v)
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

func (a *agent) commit(snap id.Snapshot, p pack, more ...int64) error {
	r, err := a.send(agentapi.VolumeRequest{Op: agentapi.VolumeCommit, Commit: a.request(snap, p, more...)})
	if err == nil {
		a.head = r.Commit.Seq
	}
	return err
}

func (a *agent) request(snap id.Snapshot, p pack, more ...int64) *agentapi.CommitVolume {
	set := manifest.NewPackSet(append(more, p.n)...)
	return &agentapi.CommitVolume{
		Snapshot: snap.String(), BaseSeq: a.head, Packs: set.Encode(), Files: 1, CutAtMS: time.Now().UnixMilli(),
		Root: agentapi.PackPlace{ID: p.root.ID.String(), Pack: p.root.Pack, Offset: p.root.Offset, Length: p.root.Length,
			Size: p.root.Size},
		Cause: agentapi.SnapshotByJob, Consistency: agentapi.SnapshotExact,
	}
}

// snapshot stores files and commits them.
func (a *agent) snapshot(files map[string][]byte) (pack, error) {
	snap := id.New[id.Snapshot]()
	p, err := a.build(files)
	if err != nil {
		return p, err
	}
	u, err := a.grant(snap, p)
	if err != nil {
		return p, err
	}
	if status := put(a.w.t, u, p.body); status != http.StatusOK {
		return p, fmt.Errorf("PUT: %d", status)
	}
	return p, a.commit(snap, p)
}

// code returns the code of a refusal, or "".
func code(err error) string {
	var e *agentapi.VolumeError
	if errors.As(err, &e) {
		return e.Code
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return ""
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}
