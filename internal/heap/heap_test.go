package heap

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{
		{0, 400}, {10 << 20, 400}, {64 << 20, 400}, {100 << 20, 250}, {200 << 20, 120}, {256 << 20, 100}, {10 << 30, 100},
	} {
		if got := percent(c.live); got != c.want {
			t.Errorf("percent(%d MiB) = %d, want %d", c.live>>20, got, c.want)
		}
	}
}

// The percentage follows the live memory, at the collections after which it is another.
func TestFollow(t *testing.T) {
	set := make(chan int, 100)
	follow(func(p int) int { set <- p; return 0 })
	if p := <-set; p != most {
		t.Fatalf("with little live memory: %d", p)
	}
	held := make([]byte, 600<<20) // never touched, so it takes no memory
	for p := most; p != least; {
		runtime.GC()
		select {
		case p = <-set:
		default:
			runtime.Gosched()
		}
	}
	runtime.KeepAlive(held)
	for p := least; p != most; {
		runtime.GC()
		select {
		case p = <-set:
		default:
			runtime.Gosched()
		}
	}
}

func TestCgroupLimit(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("list", "12:memory:/old\n0::/system.slice/muster.service\n")
	limit := func() int64 { return cgroupLimit(filepath.Join(root, "list"), filepath.Join(root, "fs")) }
	if got := limit(); got != 0 {
		t.Errorf("without files: %d", got)
	}
	write("fs/system.slice/muster.service/memory.max", "max\n")
	if got := limit(); got != 0 {
		t.Errorf("without a limit: %d", got)
	}
	write("fs/system.slice/memory.max", "1073741824\n")
	write("fs/memory.max", "8589934592\n")
	if got := limit(); got != 1<<30 {
		t.Errorf("the group above is limited: %d", got)
	}
	write("fs/system.slice/muster.service/memory.max", "536870912\n")
	if got := limit(); got != 512<<20 {
		t.Errorf("the group is limited: %d", got)
	}
	if got := cgroupLimit(filepath.Join(root, "none"), root); got != 0 {
		t.Errorf("without a list: %d", got)
	}
}
