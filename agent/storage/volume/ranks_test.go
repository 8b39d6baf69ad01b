package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// attachRank is attach for a rank's copy.
func (p platform) attachRank(t *testing.T, root string) *Volume {
	t.Helper()
	cfg := p.config(root)
	cfg.Mount.Mode = agentapi.MountRanks
	v, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	if err := v.Restore(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return v
}

// A rank's snapshot waits for the other ranks, goes on under its id after a kill, and has the id of the commit of all.
func TestASnapshotWaitsForOtherRanks(t *testing.T) {
	t.Parallel()
	p, root := newPlatform(t), newRoot(t)
	v := p.attachRank(t, root)
	write(t, filepath.Join(dataOf(root), "a"), 1000, 1)
	asked := 0
	p.Missing = func(q agentapi.PrepareVolume) []int {
		if asked++; asked < 3 || !q.AllRanks || q.Label != "L" {
			return []int{1, 2}
		}
		return nil
	}
	q := newRequest()
	q.Label, q.AllRanks = "L", true
	ctx, kill := context.WithCancel(t.Context())
	q.Wait = func(missing []int) bool {
		if len(missing) != 2 {
			t.Errorf("waits for %v", missing)
		}
		kill()
		return true
	}
	if _, err := v.Snapshot(ctx, q); err == nil {
		t.Fatal("a snapshot without the other ranks")
	}
	v.Close()
	v = p.attachRank(t, root)
	if v.Pending() != q.ID {
		t.Fatalf("after a kill %q is under way", v.Pending())
	}
	q.Wait = nil
	r, err := v.Snapshot(t.Context(), q)
	if err != nil || r.ID != q.ID || r.As != "snp_of_all" || asked != 3 {
		t.Fatalf("%+v %v after %d requests", r, err, asked)
	}
	if d := v.Durable(); d.Snapshot != q.ID || d.As != "snp_of_all" {
		t.Errorf("%+v", d)
	}
	// It was committed by another rank's request, while this process did not run.
	v.Close()
	if d := p.attachRank(t, root).Durable(); d.As != "snp_of_all" || d.Seq != 1 {
		t.Errorf("%+v", d)
	}
}

// A commit counts although its records cannot be removed: the disk may be read-only by then.
func TestSnapshot_CountsAlthoughItsRecordsStay(t *testing.T) {
	t.Parallel()
	p, root := newPlatform(t), newRoot(t)
	v := p.attachRank(t, root)
	write(t, filepath.Join(dataOf(root), "a"), 1000, 1)
	open := filepath.Join(root, cutName, openName)
	p.Missing = func(agentapi.PrepareVolume) []int { // a folder in the record's place cannot be unlinked
		if err := errors.Join(os.Remove(open), os.Mkdir(open, 0o700)); err != nil {
			t.Error(err)
		}
		return nil
	}
	q := newRequest()
	if _, err := v.Snapshot(t.Context(), q); err == nil {
		t.Fatal("the record was removed")
	}
	if d := v.Durable(); d.Snapshot != q.ID || v.Pending() != "" {
		t.Errorf("%+v, %q is under way", d, v.Pending())
	}
}

// A rank that does not wait any longer withdraws what it has prepared, and goes on; one that is too late to withdraw
// has a commit.
func TestASnapshotThatOtherRanksDoNotMake(t *testing.T) {
	t.Parallel()
	p, root := newPlatform(t), newRoot(t)
	v := p.attachRank(t, root)
	write(t, filepath.Join(dataOf(root), "a"), 1000, 1)
	p.Missing = func(agentapi.PrepareVolume) []int { return []int{1} }
	q := newRequest()
	q.Label, q.AllRanks, q.Wait = "L", true, func([]int) bool { return false }
	if _, err := v.Snapshot(t.Context(), q); !errors.Is(err, ErrAlone) || len(p.Withdrawn) != 1 || p.Withdrawn[0] != q.ID {
		t.Fatalf("%v, withdrawn: %v", err, p.Withdrawn)
	}
	if v.Pending() != "" {
		t.Errorf("%s is still under way", v.Pending())
	}
	late := newRequest()
	late.Label, late.AllRanks = "L", true
	late.Wait = func([]int) bool {
		p.Mu.Lock()
		defer p.Mu.Unlock()
		p.Snapshots = append(p.Snapshots, agentapi.Snapshot{ID: late.ID, Seq: 1})
		return false
	}
	if r, err := v.Snapshot(t.Context(), late); err != nil || r.Seq != 1 || r.As != "snp_of_all" {
		t.Fatalf("%+v %v", r, err)
	}
	p.Missing = nil
	write(t, filepath.Join(dataOf(root), "b"), 1000, 2)
	if r := v.mustSnapshot(t); r.Seq != 2 {
		t.Errorf("%+v", r)
	}
}

// Two files that a manifest gives one number by mistake, or to deceive, stay two files; the names of one file stay one.
func TestNamesOfAFileAreByContent(t *testing.T) {
	t.Parallel()
	p, one, two := newPlatform(t), newRoot(t), newRoot(t)
	v := p.attachRank(t, one)
	write(t, filepath.Join(dataOf(one), "a"), 1000, 1)
	if err := os.Link(filepath.Join(dataOf(one), "a"), filepath.Join(dataOf(one), "z")); err != nil {
		t.Fatal(err)
	}
	v.mustSnapshot(t)
	write(t, filepath.Join(dataOf(one), "0"), 1000, 2) // it comes before, and has two names, too
	if err := os.Link(filepath.Join(dataOf(one), "0"), filepath.Join(dataOf(one), "1")); err != nil {
		t.Fatal(err)
	}
	v.mustSnapshot(t)
	p.attachRank(t, two)
	if a, b := listing(t, dataOf(one)), listing(t, dataOf(two)); a != b {
		t.Errorf("restored:\n%s\nwant:\n%s", b, a)
	}
}
