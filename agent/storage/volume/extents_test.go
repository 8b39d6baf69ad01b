package volume

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/scratch"
)

// What differs between a file and its older clone is found without reading either.
func TestChangedRanges(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	c := newCut(t, root)
	const mb = 1 << 20
	f, err := os.Create(filepath.Join(scratch.Data(root), "big"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(at, n int64, b byte) {
		t.Helper()
		if _, err := f.WriteAt(bytes.Repeat([]byte{b}, int(n)), at); err != nil {
			t.Fatal(err)
		}
	}
	write(0, 32*mb, 1)
	n, err := c.clones.take(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	old, err := c.clones.open(n)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	check := func(size int64, want ...int64) {
		t.Helper()
		got, ok, err := changedRanges(f, old, size, 32*mb)
		if err != nil || !ok {
			t.Fatalf("%v %v", ok, err)
		}
		var have []int64
		for _, r := range got {
			have = append(have, r.Offset, r.Length)
		}
		if !slices.Equal(have, want) {
			t.Errorf("got %v, want %v", have, want)
		}
	}
	check(32 * mb)
	write(4*mb, mb, 2)
	write(20*mb+4096, 4096, 3)
	check(32*mb, 4*mb, mb, 20*mb+4096, 4096)
	write(32*mb, mb, 4)
	check(33*mb, 4*mb, mb, 20*mb+4096, 4096, 32*mb, mb)
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 8*mb, mb); err != nil {
		t.Fatal(err)
	}
	check(33*mb, 4*mb, mb, 8*mb, mb, 20*mb+4096, 4096, 32*mb, mb)
	holes, err := holesOf(f, 33*mb)
	if err != nil || len(holes) != 1 || holes[0].Offset != 8*mb || holes[0].Length != mb {
		t.Errorf("holes %v %v", holes, err)
	}
	if err := f.Truncate(6 * mb); err != nil {
		t.Fatal(err)
	}
	check(6*mb, 4*mb, mb)
}
