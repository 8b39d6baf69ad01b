package e2e

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// readsOnDemand reads a part of a file, then all of it, and prints its hash and what an attempt to write says.
const readsOnDemand = `$| = 1;
open(my $in, "<", "/data/set/big") or die "open: $!";
seek($in, 5000000, 0) or die "seek: $!";
read($in, my $part, 16) == 16 or die "read: $!";
print "at 5000000: ", unpack("H*", $part), "\n";
my ($sum) = split " ", qx(sha256sum /data/set/big);
print "all: $sum\n";
open(my $f, ">", "/data/set/new") or print "write: $!\n";
`

// A volume is mounted without being restored, and its file is read when the program reads it.
func TestAVolumeIsReadOnDemand(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 10*money.Unit)
	name := fmt.Sprintf("set-%d", time.Now().UnixNano())
	v, err := r.Volumes.Create(t.Context(), client.NewVolume{Name: name, SizeGB: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 40<<20)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(b) // never fails
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "big"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	r.upload(t, dir, name+":/set")
	dear := 100 * money.Micro(money.Unit/1000)
	s := p.spec(1, 1, "perl", "-e", readsOnDemand)
	s.Image, s.MaxPricePerHour = p.shellImage(t), &dear
	s.Mounts = []client.Mount{{Path: "/data", Volume: v.ID, Mode: "ro", Lazy: true, CacheGB: 1}}
	c := r.rent(t, s)
	done, err := r.Clusters.Wait(t.Context(), c.ID, client.Released, nil)
	if err != nil || done.Reason != "completed" {
		t.Fatalf("%s %s: %v\n%s\n%s", done.State, done.Detail, err, r.timeline(t, c), r.logs(t, c, 0))
	}
	r.settle(t, c)
	want := fmt.Sprintf("at 5000000: %x\nall: %x\nwrite: Read-only file system\n", b[5_000_000:5_000_016],
		sha256.Sum256(b))
	if got := r.logs(t, c, 0); got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}
