//go:build long

package e2e

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// readsDataSet prints the hash of each file of the data set, and what an attempt to write it says.
const readsDataSet = `$| = 1;
print "$_\n" for map { join " ", (split " ", qx(sha256sum /data/set/$_))[0], $_ } "images", "labels";
open(my $f, ">", "/data/set/new") or print "write: $!\n";
`

// The recipe "A data set that many ranks read" of docs/data.md: it is uploaded without a cluster, and eight ranks
// on eight hosts read it.
func TestADataSetIsReadByEightRanks(t *testing.T) {
	t.Parallel()
	p := own(t, "--hosts", "8", "--scratch-gb", "4")
	r := p.renter(t, 50*money.Unit)
	v, err := r.Volumes.Create(t.Context(), client.NewVolume{Name: "set", SizeGB: 1})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var want strings.Builder
	noise := rand.NewChaCha8([32]byte{1})
	for _, f := range []struct {
		name string
		size int
	}{{"images", 100 << 20}, {"labels", 1 << 10}} {
		b := make([]byte, f.size)
		_, _ = noise.Read(b) // never fails
		if err := os.WriteFile(filepath.Join(dir, f.name), b, 0o644); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&want, "%x %s\n", sha256.Sum256(b), f.name)
	}
	r.upload(t, dir, "set:/set")
	s := p.spec(8, 1, "perl", "-e", readsDataSet)
	s.Image = p.shellImage(t)
	s.Mounts = []client.Mount{{Path: "/data", Volume: v.ID, Mode: "ro"}}
	c := r.rent(t, s)
	done, err := r.Clusters.Wait(t.Context(), c.ID, client.Released, nil)
	if err != nil || done.Reason != "completed" {
		t.Fatalf("%s %s: %v\n%s", done.State, done.Detail, err, r.timeline(t, c))
	}
	r.settle(t, c)
	for rank := range 8 {
		if got := r.logs(t, c, rank); got != want.String()+"write: Read-only file system\n" {
			t.Errorf("rank %d:\n%swant:\n%s", rank, got, want.String())
		}
	}
	t.Logf("%.1f s from rent to running", done.RunningAt.Sub(done.CreatedAt).Seconds())
}
