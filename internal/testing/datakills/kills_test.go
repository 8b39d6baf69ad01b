package datakills

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/id"
)

// Server, agent and the process for volumes are killed at random moments of writes, snapshots and collections. Every
// snapshot that was committed reads back in full, by hash, and is not torn; those that were requested are committed
// once, under their ids; and another host restores the last one. MUSTER_TEST_KILLS is how many kills there are at
// least: 20, and 1000 in make test-data.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	kills, err := strconv.Atoi(os.Getenv("MUSTER_TEST_KILLS"))
	if err != nil {
		kills = 20
	}
	w := newWorld(t)
	for w.kills < kills && !t.Failed() {
		w.round(t)
	}
	w.end(t)
	if w.exact == 0 || w.killed["server"] == 0 || w.killed["agent"] == 0 || w.killed["snapd"] == 0 {
		t.Errorf("%d exact snapshots, kills: %v", w.exact, w.killed)
	}
	t.Logf("kills: %v; %d snapshots committed, %d of them exact, %d deleted, read back %d times", w.killed,
		w.committed(t), w.exact, w.deleted, w.reads)
}

// round requests a snapshot and kills some of the processes while it is taken, sent or committed.
func (w *world) round(t *testing.T) {
	t.Helper()
	snap := id.New[id.Snapshot]()
	w.requested = append(w.requested, snap)
	w.want(t, func(m *agentapi.Mount) { m.SnapshotNow = snap.String() })
	time.Sleep(time.Duration(rand.IntN(700)) * time.Millisecond)
	fresh := false // the process for volumes is another one: else it rests before the next snapshot
	for _, part := range []string{"server", "agent", "snapd"} {
		if rand.IntN(2) == 0 && (part != "snapd" || fresh) {
			continue
		}
		fresh = w.kill(t, part) && part != "server" || fresh
		time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
	}
	if rand.IntN(3) == 0 && fresh { // the next round begins while this snapshot is under way
		return
	}
	w.awaitCommit(t, snap)
	w.readBack(t, 0)
	w.deleteSome(t)
	if !fresh {
		w.kill(t, "snapd")
	}
}

// awaitCommit waits until a snapshot is committed.
func (w *world) awaitCommit(t *testing.T, snap id.Snapshot) {
	t.Helper()
	w.eventually(t, "the commit of "+snap.String(), func() bool {
		return w.count(t, "SELECT count(*) FROM volume_snapshot WHERE id = $1", snap) == 1
	})
}

// deleteSome deletes some of the snapshots, so that their packs are collected while others are committed.
func (w *world) deleteSome(t *testing.T) {
	t.Helper()
	// A URL's time is over at once: else no pack would be collected during the test.
	w.Exec("UPDATE data_pack SET url_until = clock_timestamp() WHERE state <> 'granted'")
	all, err := w.v.Snapshots.List(t.Context(), w.who.Org, w.vol)
	w.Must(err)
	for i, s := range all {
		if i > 0 && rand.IntN(4) == 0 && w.v.Snapshots.Delete(t.Context(), w.who, w.vol, s.Seq) == nil {
			w.deleted++
		}
	}
}

// readBack reads every file of a snapshot, by number (0: the last), and judges them.
func (w *world) readBack(t *testing.T, seq int64) map[string][]byte {
	t.Helper()
	tree, err := w.v.Files.Tree(t.Context(), w.who.Org, w.vol, seq)
	w.Must(err)
	files := map[string][]byte{}
	for _, dir := range []string{"", "hot", "kept"} {
		list, _, err := tree.List(t.Context(), dir, "", volume.MaxPage)
		if err != nil {
			t.Errorf("snapshot %d: %q: %v", tree.Snapshot.Seq, dir, err)
			return nil
		}
		for _, f := range list {
			if f.Kind != "file" {
				continue
			}
			name := f.Name
			if dir != "" {
				name = dir + "/" + f.Name
			}
			var b bytes.Buffer
			err := tree.Send(t.Context(), name, func(volume.File) io.Writer { return &b })
			if err != nil || int64(b.Len()) != f.Size {
				t.Errorf("snapshot %d: %s: %d of %d bytes: %v", tree.Snapshot.Seq, name, b.Len(), f.Size, err)
				return nil
			}
			files[name] = b.Bytes()
		}
	}
	exact := tree.Snapshot.Consistency == agentapi.SnapshotExact
	if err := torn(files, exact); err != nil {
		t.Errorf("snapshot %d, %s, is torn: %v", tree.Snapshot.Seq, tree.Snapshot.Consistency, err)
	}
	if w.reads++; exact {
		w.exact++
	}
	return files
}

// end ends the writer and the volume's session, looks at everything that was committed, and restores the last snapshot
// on another host.
func (w *world) end(t *testing.T) {
	t.Helper()
	w.eventually(t, "the writer goes on: nothing is stopped for a snapshot any more", w.writes())
	w.writer.kill()
	last := id.New[id.Snapshot]()
	w.requested = append(w.requested, last)
	w.want(t, func(m *agentapi.Mount) { m.SnapshotNow = last.String() })
	w.awaitCommit(t, last)
	all, err := w.v.Snapshots.List(t.Context(), w.who.Org, w.vol)
	w.Must(err)
	for _, s := range all {
		w.readBack(t, s.Seq)
	}
	w.oncePerRequest(t)
	want := w.readBack(t, 0)
	for name, b := range w.onAnotherHost(t) {
		if !bytes.Equal(b, want[name]) {
			t.Errorf("%s is restored with %d bytes, want %d", name, len(b), len(want[name]))
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("%s is not restored", name)
	}
}

// oncePerRequest checks that the snapshots of the volume are those that were requested, each once, in their order. One
// that was replaced by a newer request before it began is not there.
func (w *world) oncePerRequest(t *testing.T) {
	t.Helper()
	rows, err := w.DB.Pool.Query(t.Context(), "SELECT id FROM volume_snapshot WHERE volume_id = $1 ORDER BY seq", w.vol)
	w.Must(err)
	defer rows.Close()
	next := 0
	for rows.Next() {
		var s id.Snapshot
		w.Must(rows.Scan(&s))
		for next < len(w.requested) && w.requested[next] != s {
			next++
		}
		if next == len(w.requested) {
			t.Errorf("%s was not requested, or before one that was committed earlier", s)
			return
		}
		next++
	}
	w.Must(rows.Err())
}

func (w *world) committed(t *testing.T) int64 {
	return w.count(t, "SELECT count(*) FROM volume_snapshot WHERE volume_id = $1", w.vol)
}

// count reads a number from the database.
func (w *world) count(t *testing.T, sql string, args ...any) (n int64) {
	t.Helper()
	if err := w.DB.Pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", sql, err))
	}
	return n
}
