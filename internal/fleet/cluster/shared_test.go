package cluster_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/data/sharedfs"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/fleettest/markettest"
)

const (
	oneMarker   = "AAAAAAAAAAAAAAAAAAAAAAAAAA"
	otherMarker = "BBBBBBBBBBBBBBBBBBBBBBBBBB"
)

// A cluster with a shared file system runs only on hosts that have it: those of its operator that found its marker. It
// gets its organisation's folder, which stays after its end until it is deleted, and is erased once a host says so.
func TestRentWithASharedFileSystem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 2})
	s := sharedfs.New(w.d, bus.New(nil, nil))
	operator := w.operatorOf(w.hosts[0].id)
	for field, n := range map[string]sharedfs.NewFS{
		"name": {Name: "../x", Kind: "nfs", QuotaGB: 1}, "kind": {Name: "x", Kind: "floppy", QuotaGB: 1},
		"quota_gb": {Name: "x", Kind: "nfs"},
	} {
		_, _, err := s.Declare(w.ctx, operator, n, idem.Request{})
		wantInvalid(t, "a bad "+field, err, field)
	}
	lab := sharedfs.NewFS{Name: "lab-nfs", Kind: "nfs", QuotaGB: 5}
	fs, _, err := s.Declare(w.ctx, operator, lab, idem.Request{})
	w.Must(err)
	if _, _, err := s.Declare(w.ctx, w.renter, lab, idem.Request{}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a name is declared twice: %v", err)
	}
	report := func(i int, f agentapi.SharedFS) {
		f.Name = "lab-nfs"
		w.Must(s.RecordHost(w.ctx, w.hosts[i].id, []agentapi.SharedFS{f}))
	}
	sp := spec(2, 1)
	sp.Mounts = []client.Mount{{Path: "/shared", Shared: "no-such", Mode: agentapi.MountRW}}
	rent := func() error {
		_, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: sp}, idem.Request{})
		return err
	}
	refused := func(what string) {
		t.Helper()
		if err := rent(); !fault.Is(err, fault.NoCapacity) || !strings.Contains(explained(err), "shared file system") {
			t.Errorf("%s: %v %s", what, err, explained(err))
		}
	}
	wantInvalid(t, "it is not declared", rent(), "mounts[0].shared")
	sp.Mounts[0].Shared = "lab-nfs"
	refused("no host has it")
	report(0, agentapi.SharedFS{Marker: oneMarker, Type: "nfs4"})
	refused("one host has it")
	report(1, agentapi.SharedFS{Marker: otherMarker})
	refused("the other host has another file system")
	report(1, agentapi.SharedFS{Marker: oneMarker, Problem: "it does not answer"})
	refused("the other host cannot use it")
	report(1, agentapi.SharedFS{Marker: oneMarker, Type: "nfs4"})
	w.Must(s.RecordHost(w.ctx, w.hosts[1].id, nil))
	refused("the other host has none any more")
	report(1, agentapi.SharedFS{Marker: oneMarker, Type: "nfs4"})
	found, err := markettest.New(w.World, market.Config{MaxAge: time.Nanosecond}).SearchOffers(w.ctx,
		market.OfferSearch{Query: "shared = lab-nfs"})
	w.Must(err)
	if len(found.Items) != 2 || !slices.Equal(found.Items[0].Shared, []string{"lab-nfs"}) {
		t.Errorf("offers with the file system: %+v", found.Items)
	}
	c := w.runUp(sp)
	var folders []string
	for _, h := range w.hosts {
		for _, l := range w.desired(w.clusters[0], h.id).Leases {
			for _, m := range l.Shared {
				if m.Path != "/shared" || m.Name != "lab-nfs" || m.Marker != oneMarker || m.Mode != "rw" || m.QuotaBytes != 5e9 {
					t.Errorf("%+v", m)
				}
				folders = append(folders, m.Folder)
			}
		}
	}
	if len(folders) != 2 || folders[0] != folders[1] || !strings.HasPrefix(folders[0], "shd_") {
		t.Fatalf("the nodes have %v", folders)
	}
	if err := s.Erase(w.ctx, w.renter, fs.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("data that a cluster has is deleted: %v", err)
	}
	use := agentapi.SharedUse{Folder: folders[0], Bytes: 6e9, Closed: true}
	w.Must(s.RecordUse(w.ctx, w.hosts[0].id, []agentapi.SharedUse{use}))
	if d := w.dataOn(s, w.renter); d == nil || d.UsedBytes != 6e9 || !d.Closed || d.Clusters != 1 || !d.DeleteAt.IsZero() {
		t.Errorf("%+v", d)
	}
	if n := w.count(`SELECT count(*) FROM notice WHERE org_id = $1 AND title LIKE '%over its quota%'`, w.renter.Org); n != 1 {
		t.Errorf("%d notices", n)
	}
	_, err = w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)
	w.Must(err)
	w.clean(c)
	if d := w.dataOn(s, w.renter); d == nil || d.Clusters != 0 || d.DeleteAt.Before(time.Now().Add(29*24*time.Hour)) {
		t.Errorf("after the end: %+v", d)
	}
	if err := s.Withdraw(w.ctx, operator, fs.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("a file system with data is withdrawn: %v", err)
	}
	if err := s.Erase(w.ctx, operator, fs.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organisation deletes the data: %v", err)
	}
	w.Must(s.Erase(w.ctx, w.renter, fs.ID))
	want := agentapi.SharedErase{Name: "lab-nfs", Marker: oneMarker, Folder: folders[0]}
	if got := w.desired(w.clusters[0], w.hosts[1].id).SharedErase; len(got) != 1 || got[0] != want {
		t.Errorf("the host is asked to delete %+v", got)
	}
	erased := []agentapi.SharedUse{{Folder: folders[0], Erased: true}}
	w.Must(s.RecordUse(w.ctx, id.New[id.Host](), erased))
	if n := w.count(`SELECT count(*) FROM shared_folder WHERE state = 'erased'`); n != 0 {
		t.Error("a host that does not have the file system has erased a folder")
	}
	w.Must(s.RecordUse(w.ctx, w.hosts[1].id, erased))
	if n := w.count(`SELECT count(*) FROM shared_folder WHERE state = 'erased' AND erased_at IS NOT NULL`); n != 1 {
		t.Errorf("%d folders are erased", n)
	}
	if got := w.desired(w.clusters[0], w.hosts[1].id).SharedErase; len(got) != 0 {
		t.Errorf("the host is still asked to delete %+v", got)
	}
	w.Must(s.Withdraw(w.ctx, operator, fs.ID))
}

// Without a cluster a folder is deleted after thirty days, with a notice seven days before. A new cluster keeps it.
func TestASharedFolderWithoutAClusterIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 2})
	s := sharedfs.New(w.d, bus.New(nil, nil))
	_, _, err := s.Declare(w.ctx, w.operatorOf(w.hosts[0].id), sharedfs.NewFS{Name: "lab", Kind: "nfs", QuotaGB: 5},
		idem.Request{})
	w.Must(err)
	w.Must(s.RecordHost(w.ctx, w.hosts[0].id, []agentapi.SharedFS{{Name: "lab", Marker: oneMarker}}))
	sp := spec(1, 1)
	sp.Mounts = []client.Mount{{Path: "/shared", Shared: "lab", Mode: agentapi.MountRW}}
	round := func(what string, want int, state string) {
		t.Helper()
		n, err := s.EndIdle(w.ctx)
		w.Must(err)
		live := w.count(`SELECT count(*) FROM shared_folder WHERE state = $1`, state)
		if n != want || live != 1 {
			t.Errorf("%s: %d folders, want %d; %d are %s", what, n, want, live, state)
		}
	}
	age := func(days int) {
		w.exec(`UPDATE shared_folder SET used_at = used_at - interval '1 day' * $1, warned_at = warned_at - interval '1 day' * $1`, days)
		w.exec(`UPDATE cluster SET ended_at = ended_at - interval '1 day' * $1`, days)
	}
	c := w.runUp(sp)
	w.exec(`UPDATE shared_folder SET used_at = used_at - interval '40 days'`)
	round("a cluster has it", 0, "live")
	_, err = w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)
	w.Must(err)
	w.clean(c)
	age(22)
	round("22 days", 0, "live")
	age(2)
	round("24 days", 1, "live")
	round("24 days, again", 0, "live")
	again := w.runUp(sp)
	_, err = w.clusters[0].Rentals.Release(w.ctx, w.renter, again.ID)
	w.Must(err)
	w.clean(again)
	age(24)
	round("used again, 24 days", 1, "live")
	age(3)
	round("27 days", 0, "live")
	age(5)
	round("32 days", 1, "deleting")
	if n := w.count(`SELECT count(*) FROM notice WHERE org_id = $1 AND title LIKE '%will be deleted'`, w.renter.Org); n != 2 {
		t.Errorf("%d notices", n)
	}
}

// dataOn returns what an organisation has on the only file system.
func (w *world) dataOn(s *sharedfs.Shared, who account.Principal) *sharedfs.Data {
	all, err := s.List(w.ctx, who.Org)
	w.Must(err)
	if len(all) != 1 {
		w.Must(fault.New(fault.Conflict, "%d file systems", len(all)))
	}
	return all[0].Data
}

// operatorOf returns the operator of a host.
func (w *world) operatorOf(h id.Host) account.Principal {
	var org id.Org
	w.Must(w.d.Pool.QueryRow(w.ctx, `SELECT org_id FROM host WHERE id = $1`, h).Scan(&org))
	return account.Principal{Org: org, User: w.renter.User}
}

func (w *world) count(sql string, args ...any) (n int) {
	w.t.Helper()
	w.Must(w.d.Pool.QueryRow(w.ctx, sql, args...).Scan(&n))
	return n
}
