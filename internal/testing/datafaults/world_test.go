package datafaults

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/agent/storage/scratch"
	agentvolume "github.com/musterhq/muster/agent/storage/volume"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// world is a volume that a host has attached, and its store.
type world struct {
	*fleettest.World
	t      *testing.T
	faults *s3test.Faults
	direct *store.S3 // without faults
	v      *volume.Volumes
	who    account.Principal
	host   id.Host
	vol    id.Volume
	domain id.DataDomain
	ref    agentapi.LeaseRef
	root   string
	a      *agentvolume.Volume
	files  map[string][32]byte // what the volume should have, by name
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("volumes need root: run the tests as root")
	}
	gateway := s3test.Start(t)
	w := &world{World: fleettest.New(t, dbtest.New(t)), t: t, faults: s3test.Behind(t, gateway.Config),
		files: map[string][32]byte{}}
	var err error
	w.direct, err = store.OpenS3(gateway.Config)
	w.Must(err)
	s, err := store.OpenS3(w.faults.Config)
	w.Must(err)
	w.v = volume.New(w.DB, s, volume.Config{Currency: "USD", Box: w.Box(), Grace: time.Millisecond})
	w.who = w.SignUp("renter")
	operator := w.SignUp("operator")
	w.host = fleettest.Enroll(t, w.DB, operator.Org, operator.User, 1).Host
	vol, _, err := w.v.Catalog.Create(t.Context(), w.who, volume.NewVolume{Name: "data", SizeGB: 1}, idem.Request{})
	w.Must(err)
	w.vol = vol.ID
	w.Must(w.DB.Pool.QueryRow(t.Context(), "SELECT domain_id FROM volume WHERE id = $1", w.vol).Scan(&w.domain))
	_, lease := w.rent()
	w.ref = agentapi.LeaseRef{Lease: lease.String(), Epoch: 1}
	w.root = w.newRoot()
	w.a, err = agentvolume.Open(t.Context(), w.config(w.root))
	w.Must(err)
	t.Cleanup(func() { w.a.Close() })
	w.Must(w.a.Restore(t.Context(), nil))
	return w
}

// rent gives the volume to a new cluster, as cluster.Rent does.
func (w *world) rent() (cl id.Cluster, lease id.Lease) {
	w.t.Helper()
	cl, lease = fleettest.Lease(w.t, w.DB, w.host, w.who.Org)
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		b := &pgx.Batch{}
		c := volume.QueueClaims(b, w.who.Org, []volume.Mount{{Volume: w.vol, Mode: agentapi.MountRW, At: "mounts[0].volume"}})
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
	return cl, lease
}

// newRoot is the file system of a volume, as long as the test.
func (w *world) newRoot() string {
	w.t.Helper()
	s := scratch.New(w.t.TempDir(), 0, "0badcafe")
	ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	w.Must(s.MakeVolume(w.t.Context(), ref, w.vol.String(), 64<<20))
	w.t.Cleanup(func() {
		if err := s.Sweep(func(agentapi.LeaseRef) bool { return false }); err != nil {
			w.t.Error(err)
		}
	})
	return s.VolumePath(ref, w.vol.String())
}

func (w *world) config(root string) agentvolume.Config {
	w.t.Helper()
	var sealed []byte
	w.Must(w.DB.Pool.QueryRow(w.t.Context(), "SELECT key_sealed FROM data_domain WHERE id = $1", w.domain).Scan(&sealed))
	key, err := volume.OpenKey(w.Box(), w.domain, sealed)
	w.Must(err)
	return agentvolume.Config{Ref: w.ref, Root: root, Least: time.Millisecond, Log: slog.New(slog.DiscardHandler),
		HTTP:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}},
		BootMS: func() int64 { return time.Now().UnixMilli() },
		Mount:  agentapi.Mount{Path: "/data", Volume: w.vol.String(), Name: "data", Mode: agentapi.MountRW, Key: key},
		Server: func(ctx context.Context, q agentapi.VolumeRequest) (agentapi.VolumeReply, error) {
			return w.v.Hosts.Serve(ctx, w.host, q), nil
		}}
}

// write writes a file of noise into the volume.
func (w *world) write(name string, size int, seed byte) {
	w.t.Helper()
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	w.Must(os.WriteFile(filepath.Join(scratch.Data(w.root), name), b, 0o600))
	w.files[name] = sha256.Sum256(b)
}

// snapshot takes a snapshot.
func (w *world) snapshot() (agentvolume.Result, error) {
	return w.a.Snapshot(w.t.Context(), agentvolume.Request{ID: id.New[id.Snapshot]().String(),
		Cause: agentapi.SnapshotByRequest})
}

// head is the number of the last snapshot.
func (w *world) head() int64 {
	w.t.Helper()
	x, err := w.v.Catalog.Get(w.t.Context(), w.who.Org, w.vol)
	w.Must(err)
	return x.HeadSeq
}

// same reads the last snapshot back, and compares all of it.
func (w *world) same() {
	w.t.Helper()
	tree, err := w.v.Files.Tree(w.t.Context(), w.who.Org, w.vol, 0)
	w.Must(err)
	list, _, err := tree.List(w.t.Context(), "", "", volume.MaxPage)
	w.Must(err)
	if len(list) != len(w.files) {
		w.t.Errorf("the snapshot has %d files of %d", len(list), len(w.files))
	}
	for _, f := range list {
		var b bytes.Buffer
		err := tree.Send(w.t.Context(), f.Name, func(volume.File) io.Writer { return &b })
		if err != nil || sha256.Sum256(b.Bytes()) != w.files[f.Name] {
			w.t.Errorf("%s: %d bytes of %d: %v", f.Name, b.Len(), f.Size, err)
		}
	}
}

// eventually waits for something.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("not within a minute: %s", what)
		}
	}
}

// shown waits until a volume says why it waits, and checks that this names no secret.
func (w *world) shown(a *agentvolume.Volume, want string) {
	w.t.Helper()
	why := ""
	w.eventually(fmt.Sprintf("%q, instead of what was last shown", want), func() bool {
		if got := a.Trouble(); got != "" {
			why = got
		}
		return strings.Contains(why, want)
	})
	for _, secret := range []string{"http", "X-Amz", w.faults.Config.Secret} {
		if strings.Contains(why, secret) {
			w.t.Errorf("%q contains %s", why, secret)
		}
	}
}
