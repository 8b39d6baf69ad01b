package volume

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// A snapshot that is committed too soon after the last one waits for its turn, and shows the moment of its cut.
func TestASnapshotThatComesTooSoon(t *testing.T) {
	t.Parallel()
	p, root := newPlatform(t), newRoot(t)
	v := p.attach(t, root)
	file := filepath.Join(dataOf(root), "a")
	write(t, file, 1000, 1)
	refusals := 0
	p.Refuse = func(q agentapi.VolumeRequest) *agentapi.VolumeError {
		if q.Op != agentapi.VolumeCommit || refusals == 3 {
			return nil
		}
		refusals++
		write(t, file, 1000, 2) // after the cut
		return &agentapi.VolumeError{Code: agentapi.VolumeTooSoon, Message: "less than 10 s after the last snapshot"}
	}
	q := newRequest()
	if r, err := v.Snapshot(t.Context(), q); err != nil || r.ID != q.ID || refusals != 3 {
		t.Fatalf("%+v %v", r, err)
	}
	two := newRoot(t)
	p.attach(t, two)
	if b, err := os.ReadFile(filepath.Join(dataOf(two), "a")); err != nil || string(b) != string(noise(1000, 1)) {
		t.Errorf("the snapshot shows a later moment than that of its cut: %v", err)
	}
}
