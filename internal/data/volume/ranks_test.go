package volume

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

type tree = map[string][]byte

// ranks is a cluster whose ranks write copies of one volume.
type ranks struct {
	*world
	vol     id.Volume
	cluster id.Cluster
	agents  []*rank
}

// rank is the host's side of one rank.
type rank struct {
	*agent
	files tree // its copy
}

// newRanks rents a cluster of n ranks, on two hosts in turn, and opens their copies.
func newRanks(t *testing.T, cfg Config, n int) *ranks {
	w := newWorld(t, cfg)
	r := &ranks{world: w, vol: w.create("data").ID}
	r.start(n)
	return r
}

func (r *ranks) start(n int) {
	r.t.Helper()
	cl, lease, err := r.rent(r.hosts[0], agentapi.MountRanks, r.vol)
	r.Must(err)
	r.cluster, r.agents = cl, nil
	r.agents = append(r.agents, &rank{agent: r.agent(r.hosts[0], lease, r.vol)})
	for i := 1; i < n; i++ {
		r.agents = append(r.agents, r.addRank(i, r.hosts[i%2], 1))
	}
	r.open()
}

// addRank adds a rank's node and lease, as rank 0 has them.
func (r *ranks) addRank(i int, host id.Host, epoch int) *rank {
	lease, node := id.New[id.Lease](), id.New[id.Node]()
	r.Exec(`WITH n AS (INSERT INTO node (id, cluster_id, rank, host_id, lease_id, epoch, state, address)
		SELECT $1, cluster_id, $2, $3, $4, $5, 'ready', $7 FROM node WHERE cluster_id = $6 AND rank = 0
		ON CONFLICT (cluster_id, rank) DO UPDATE
		SET host_id = excluded.host_id, lease_id = excluded.lease_id, epoch = excluded.epoch,
			state = 'ready' RETURNING id)
		INSERT INTO lease (id, cluster_id, node_id, rank, host_id, renter_org_id, host_org_id, gpu_count, gpu_model, gpu_ids,
			cpu_cores, ram_mb, disk_gb, currency, host_share_ppm, epoch)
		SELECT $4, l.cluster_id, n.id, $2, h.id, l.renter_org_id, h.org_id, 1, 'H100', '{}', 1, 1, 1, 'USD', 850000, $5
		FROM lease l, n, host h WHERE l.cluster_id = $6 AND l.rank = 0 AND l.ended_at IS NULL AND h.id = $3`,
		node, i, host, lease, epoch, r.cluster, fmt.Sprintf("fd00::%d", i))
	a := r.agent(host, lease, r.vol)
	a.ref.Epoch = epoch
	return &rank{agent: a}
}

func (r *ranks) open() {
	r.t.Helper()
	for _, a := range r.agents {
		r.Must(a.agent.open(agentapi.MountRanks))
		a.files = r.restored(a.base)
	}
}

// restored is what a host would restore.
func (r *ranks) restored(s *agentapi.Snapshot) tree {
	r.t.Helper()
	out := tree{}
	if s == nil {
		return out
	}
	t, err := r.v.Files.Tree(r.t.Context(), r.who.Org, r.vol, s.Seq)
	r.Must(err)
	list, _, err := t.List(r.t.Context(), "", "", MaxPage)
	r.Must(err)
	for _, f := range list {
		var b strings.Builder
		r.Must(t.Send(r.t.Context(), f.Name, func(File) io.Writer { return &b }))
		out[f.Name] = []byte(b.String())
	}
	return out
}

// head is what the volume has.
func (r *ranks) head() string {
	r.t.Helper()
	v, err := r.v.Catalog.Get(r.t.Context(), r.who.Org, r.vol)
	r.Must(err)
	if v.HeadSeq == 0 {
		return "empty"
	}
	return show(r.restored(&agentapi.Snapshot{Seq: v.HeadSeq}))
}

func show(t tree) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		out = append(out, name+"="+string(t[name]))
	}
	return strings.Join(out, " ")
}

// shard stores a rank's copy and returns the request that prepares it.
func (a *rank) shard(cause, label string) (agentapi.PrepareVolume, error) {
	snap := id.New[id.Snapshot]()
	p, err := a.build(a.files)
	if err != nil {
		return agentapi.PrepareVolume{}, err
	}
	u, err := a.grant(snap, p)
	if err != nil {
		return agentapi.PrepareVolume{}, err
	}
	if status := put(a.w.t, u, p.body); status != http.StatusOK {
		return agentapi.PrepareVolume{}, fmt.Errorf("PUT: %d", status)
	}
	q := agentapi.PrepareVolume{CommitVolume: *a.request(snap, p), AllRanks: label != ""}
	q.Cause, q.Label = cause, label
	return q, nil
}

// send prepares a shard, and goes on from what was committed.
func (a *rank) send(q agentapi.PrepareVolume) (*agentapi.PreparedVolume, error) {
	r, err := a.agent.send(agentapi.VolumeRequest{Op: agentapi.VolumePrepare, Prepare: &q})
	if err != nil {
		return nil, err
	}
	if r.Prepare.Seq > 0 {
		a.agent.head = r.Prepare.Seq
	}
	return r.Prepare, nil
}

// checkpoint prepares the copy with more files for a label.
func (a *rank) checkpoint(label string, more tree) (agentapi.PrepareVolume, *agentapi.PreparedVolume, error) {
	maps.Copy(a.files, more)
	q, err := a.shard(agentapi.SnapshotByJob, label)
	if err != nil {
		return q, nil, err
	}
	p, err := a.send(q)
	return q, p, err
}

// Every rank writes files of its own. The last one that prepares commits them all as one snapshot, and the others learn
// that by asking again.
func TestRanksCommitTogether(t *testing.T) {
	t.Parallel()
	r := newRanks(t, Config{Grace: time.Millisecond}, 3)
	var asked []agentapi.PrepareVolume
	for i, a := range r.agents {
		q, p, err := a.checkpoint("step_1", tree{fmt.Sprintf("rank%d", i): noise(10), "same": []byte("s")})
		r.Must(err)
		asked = append(asked, q)
		if waits := i < 2; waits != (p.Seq == 0) || waits && len(p.Missing) != 2-i {
			t.Fatalf("rank %d: %+v", i, p)
		}
		if i < 2 && r.head() != "empty" {
			t.Fatalf("committed before the last one: %s", r.head())
		}
		_, err = r.v.Collector.Sweep(t.Context())
		r.Must(err)
	}
	var ids []string
	for i, a := range r.agents {
		p, err := a.send(asked[i])
		r.Must(err)
		if p.Seq != 1 {
			t.Errorf("rank %d: %+v", i, p)
		}
		ids = append(ids, p.Snapshot)
	}
	list, err := r.v.Snapshots.List(t.Context(), r.who.Org, r.vol)
	r.Must(err)
	if len(list) != 1 || list[0].ID.String() != ids[0] || ids[0] != ids[1] || ids[1] != ids[2] || list[0].Files != 4 ||
		list[0].Label != "step_1" || !list[0].Whole || list[0].Bytes != 31 {
		t.Errorf("%+v %v", list, ids)
	}
	// Rank 1 removes what it has written, rank 2 writes more: both alone. Nothing of the others is lost.
	delete(r.agents[1].files, "rank1")
	for i, more := range []tree{{}, {"new": []byte("n")}} {
		a := r.agents[i+1]
		maps.Copy(a.files, more)
		q, err := a.shard(agentapi.SnapshotByInterval, "")
		r.Must(err)
		r.Exec("UPDATE volume_shard SET done_at = done_at - interval '1 minute'")
		if p, err := a.send(q); err != nil || p.Seq != int64(2+i) {
			t.Fatalf("%+v %v", p, err)
		}
	}
	for range 2 {
		r.Exec("UPDATE data_pack SET url_until = clock_timestamp()")
		_, err := r.v.Collector.Sweep(t.Context())
		r.Must(err)
	}
	want := show(tree{"new": []byte("n"), "rank0": r.agents[0].files["rank0"], "rank2": r.agents[2].files["rank2"],
		"same": []byte("s")})
	if r.head() != want {
		t.Errorf("%s\nwant %s", r.head(), want)
	}
	// A cluster that reads restores what all have committed.
	r.release(r.cluster)
	_, lease, err := r.rent(r.hosts[1], agentapi.MountRO, r.vol)
	r.Must(err)
	reader := r.agent(r.hosts[1], lease, r.vol)
	r.Must(reader.open(agentapi.MountRO))
	if reader.base.Seq != 1 || reader.base.Label != "step_1" {
		t.Errorf("%+v", reader.base)
	}
}

// What a host may not: prepare for a rank that is not its own, in an epoch that is over, over another rank's files,
// twice under one label, or without waiting for a rank that was replaced.
func TestRanksOfHostileHosts(t *testing.T) {
	t.Parallel()
	r := newRanks(t, Config{}, 2)
	zero, one := r.agents[0], r.agents[1]

	q, p, err := zero.checkpoint("a", tree{"f0": []byte("0")})
	r.Must(err)
	thief := *one.agent // rank 1's host sends for rank 0
	thief.session = zero.session
	if _, err := (&rank{agent: &thief}).send(q); code(err) != agentapi.VolumeNotFound {
		t.Errorf("another host's session: %v", err)
	}
	thief.ref = zero.ref
	if _, err := (&rank{agent: &thief}).send(q); code(err) != agentapi.VolumeNotFound {
		t.Errorf("another host's lease: %v", err)
	}
	if err := thief.open(agentapi.MountRanks); code(err) != agentapi.VolumeNotFound {
		t.Errorf("another host's lease, opened: %v", err)
	}
	if err := zero.commit(id.New[id.Snapshot](), pack{n: 1}); code(err) == "" {
		t.Error("a rank commits without the others")
	}
	if p.Seq != 0 || r.head() != "empty" {
		t.Errorf("%+v %s", p, r.head())
	}

	// Rank 1 claims a path of rank 0: nothing is committed, and both learn the path and the ranks.
	one.files["f0"] = []byte("mine")
	_, _, err = one.checkpoint("a", nil)
	_, err0 := zero.send(q)
	for _, err := range []error{err, err0} {
		if code(err) != agentapi.VolumeConflict ||
			!strings.Contains(err.Error(), "/f0 was changed differently by ranks 0 and 1") {
			t.Errorf("a claimed path: %v", err)
		}
	}
	delete(one.files, "f0")
	_, _, err = one.checkpoint("a", tree{"f1": []byte("1")})
	r.Must(err)
	q, p, err = zero.checkpoint("a", nil)
	r.Must(err)
	if p.Seq != 1 || r.head() != "f0=0 f1=1" {
		t.Fatalf("%+v %s", p, r.head())
	}
	// And one that rank 0 has committed before, which rank 1 never had.
	if _, err := one.send(agentapi.PrepareVolume{CommitVolume: q.CommitVolume, AllRanks: true}); code(err) == "" {
		t.Error("another rank's shard, sent as one's own")
	}
	one.agent.head = 1
	one.files["f0"] = []byte("mine")
	alone, err := one.shard(agentapi.SnapshotByEnd, "")
	r.Must(err)
	if _, err := one.send(alone); code(err) != agentapi.VolumeConflict || !strings.Contains(err.Error(),
		"/f0 was changed by rank 1, and before that by another rank") {
		t.Errorf("a path of an earlier commit: %v", err)
	}
	delete(one.files, "f0")

	if _, _, err := zero.checkpoint("a", nil); code(err) != agentapi.VolumeLabelUsed {
		t.Errorf("a label that was committed: %v", err)
	}

	// Rank 1's host is lost after it has prepared. All start again, rank 1 elsewhere.
	late, p, err := one.checkpoint("b", tree{"f1": []byte("late")})
	r.Must(err)
	if len(p.Missing) != 1 || p.Missing[0] != 0 {
		t.Fatalf("%+v", p)
	}
	r.Exec("UPDATE lease SET ended_at = clock_timestamp() WHERE id = $1", leaseID(one))
	r.Exec("UPDATE lease SET epoch = 2 WHERE id = $1", leaseID(zero))
	r.Exec("UPDATE node SET epoch = 2 WHERE cluster_id = $1", r.cluster)
	next := r.addRank(1, r.hosts[0], 2)
	oldZero := *zero
	oldAgent := *zero.agent
	oldZero.agent = &oldAgent
	zero.ref.Epoch = 2
	if _, _, err := oldZero.checkpoint("b", nil); code(err) != agentapi.VolumeFenced {
		t.Errorf("an old epoch: %v", err)
	}
	r.agents = []*rank{zero, next}
	r.open()
	if show(next.files) != "f0=0 f1=1" || next.base.Label != "a" {
		t.Errorf("restored %s, label %q", show(next.files), next.base.Label)
	}
	if _, p, err = zero.checkpoint("b", nil); err != nil || p.Seq != 0 || len(p.Missing) != 1 || p.Missing[0] != 1 {
		t.Errorf("the shard of a lost run counts: %+v %v", p, err)
	}
	if _, err := one.send(late); code(err) != agentapi.VolumeFenced {
		t.Errorf("a lost host prepares: %v", err)
	}
	if _, p, err = next.checkpoint("b", tree{"f1": []byte("2")}); err != nil || p.Seq == 0 || r.head() != "f0=0 f1=2" {
		t.Errorf("%+v %v %s", p, err, r.head())
	}
}

func leaseID(a *rank) id.Lease {
	l, _ := id.Parse[id.Lease](a.ref.Lease)
	return l
}

// A server that is killed between the last prepare and the commit loses nothing: the next request commits. What has
// changed between the merge and the commit is not committed.
func TestRanksAndAKilledServer(t *testing.T) {
	t.Parallel()
	r := newRanks(t, Config{}, 2)
	zero, one := r.agents[0], r.agents[1]
	q0, _, err := zero.checkpoint("a", tree{"f0": []byte("0")})
	r.Must(err)
	maps.Copy(one.files, tree{"f1": []byte("1")})
	q1, err := one.shard(agentapi.SnapshotByJob, "a")
	r.Must(err)
	withdrawn := q0
	withdrawn.Withdraw = true
	r.v.Hosts.rounds.merged = func() {
		r.v.Hosts.rounds.merged = nil
		if _, err := zero.send(withdrawn); err != nil {
			t.Error(err)
		}
	}
	p, err := one.send(q1)
	r.Must(err)
	if p.Seq != 0 || r.head() != "empty" {
		t.Fatalf("a withdrawn shard was committed: %+v %s", p, r.head())
	}
	killed := make(chan struct{})
	r.v.Hosts.rounds.merged = func() { close(killed); select {} } // as a process that hangs
	go func() { _, _ = zero.send(q0) }()
	<-killed
	if r.head() != "empty" {
		t.Fatalf("%s", r.head())
	}
	r.serveFrom(r.store)
	for range 2 {
		p, err = one.send(q1)
		r.Must(err)
		if p.Seq != 1 || r.head() != "f0=0 f1=1" {
			t.Fatalf("%+v %s", p, r.head())
		}
	}
	if p, err = zero.send(withdrawn); err != nil || p.Seq != 1 {
		t.Errorf("too late to withdraw: %+v %v", p, err)
	}
}

// What single ranks save by themselves is not what the next start goes on from, if all have committed a label; without
// one it is. What all have saved at their end is.
func TestWhatRanksGoOnFrom(t *testing.T) {
	t.Parallel()
	r := newRanks(t, Config{}, 2)
	by := func(i int, cause string, more tree) {
		t.Helper()
		maps.Copy(r.agents[i].files, more)
		q, err := r.agents[i].shard(cause, "")
		r.Must(err)
		if p, err := r.agents[i].send(q); err != nil || p.Seq == 0 {
			t.Fatalf("%+v %v", p, err)
		}
	}
	again := func(epoch int) string {
		t.Helper()
		r.Exec("UPDATE lease SET epoch = $1 WHERE cluster_id = $2", epoch, r.cluster)
		for _, a := range r.agents {
			a.ref.Epoch = epoch
		}
		r.open()
		if a, b := show(r.agents[0].files), show(r.agents[1].files); a != b {
			t.Fatalf("ranks go on from %q and %q", a, b)
		}
		return show(r.agents[1].files)
	}
	by(0, agentapi.SnapshotByNotice, tree{"a": []byte("1")})
	if got := again(2); got != "a=1" {
		t.Errorf("without a label: %s", got)
	}
	for _, a := range r.agents {
		_, _, err := a.checkpoint("L", nil)
		r.Must(err)
	}
	r.agents[0].agent.head = r.agents[1].agent.head
	by(1, agentapi.SnapshotByNotice, tree{"b": []byte("2")})
	if r.head() != "a=1 b=2" {
		t.Errorf("the head is %s", r.head())
	}
	if got := again(3); got != "a=1" || r.agents[0].base.Label != "L" || r.head() != "a=1" {
		t.Errorf("with a label: %s %+v, head %s", got, r.agents[0].base, r.head())
	}
	by(0, agentapi.SnapshotByEnd, tree{"c": []byte("3")})
	if got := again(4); got != "a=1" {
		t.Errorf("one rank has ended: %s", got)
	}
	by(1, agentapi.SnapshotByEnd, tree{"c": []byte("3")})
	by(0, agentapi.SnapshotByEnd, tree{"d": []byte("4")})
	if got := again(5); got != "a=1 c=3 d=4" {
		t.Errorf("both have ended: %s", got)
	}
	// While the last of them saves its final snapshot, no other cluster may write; then any may.
	r.release(r.cluster)
	if _, _, err := r.rent(r.hosts[1], agentapi.MountRW, r.vol); err == nil {
		t.Error("a second writer while ranks may still save theirs")
	}
	for _, a := range r.agents {
		_, err := a.agent.send(agentapi.VolumeRequest{Op: agentapi.VolumeClose, Close: &agentapi.CloseVolume{}})
		r.Must(err)
	}
	_, lease, err := r.rent(r.hosts[1], agentapi.MountRW, r.vol)
	r.Must(err)
	a := r.agent(r.hosts[1], lease, r.vol)
	r.Must(a.open(agentapi.MountRW))
	if got := show(r.restored(a.base)); got != "a=1 c=3 d=4" {
		t.Errorf("the next writer restores %s", got)
	}
	if err := r.agents[0].agent.open(agentapi.MountRanks); code(err) != agentapi.VolumeFenced {
		t.Errorf("a rank of the cluster before: %v", err)
	}
}

// A snapshot that the renter requests is one of all ranks, under the id that the renter was given.
func TestRequestedSnapshotOfRanks(t *testing.T) {
	t.Parallel()
	r := newRanks(t, Config{}, 2)
	snap, err := r.v.Snapshots.Request(t.Context(), r.who, r.vol)
	r.Must(err)
	var last *agentapi.PreparedVolume
	for i, a := range r.agents {
		a.files[fmt.Sprint("f", i)] = []byte{'0' + byte(i)}
		q, err := a.shard(agentapi.SnapshotByRequest, "")
		r.Must(err)
		q.AllRanks = true
		if _, err := a.send(q); code(err) != agentapi.VolumeMalformed {
			t.Errorf("an unrequested snapshot: %v", err)
		}
		q.Snapshot = snap.String()
		last, err = a.send(q)
		r.Must(err)
	}
	v, err := r.v.Catalog.Get(t.Context(), r.who.Org, r.vol)
	r.Must(err)
	if last.Snapshot != snap.String() || v.Requested || r.head() != "f0=0 f1=1" {
		t.Errorf("%+v %+v %s", last, v, r.head())
	}
}

// Many ranks prepare at the same time, round after round: each round is one snapshot that has the files of all.
func TestRanksAtTheSameTime(t *testing.T) {
	t.Parallel()
	const n, rounds = 4, 3
	r := newRanks(t, Config{}, n)
	for round := range rounds {
		var all sync.WaitGroup
		for i, a := range r.agents {
			all.Go(func() {
				q, p, err := a.checkpoint(fmt.Sprint("step_", round), tree{fmt.Sprint("r", i): {'0' + byte(round)}})
				for end := time.Now().Add(time.Minute); err == nil && p.Seq == 0 && time.Now().Before(end); {
					time.Sleep(20 * time.Millisecond)
					p, err = a.send(q)
				}
				if err != nil || p.Seq != int64(round+1) {
					t.Errorf("rank %d: %+v %v", i, p, err)
				}
			})
		}
		all.Wait()
		if want := fmt.Sprintf("r0=%[1]d r1=%[1]d r2=%[1]d r3=%[1]d", round); r.head() != want {
			t.Fatalf("%s, want %s", r.head(), want)
		}
	}
}
