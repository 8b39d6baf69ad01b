package container

import (
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/docker/go-units"
	"golang.org/x/sys/unix"
)

// These are a workload's limits of resources, the same on every host whatever its Docker's defaults are.
const (
	// wantedFiles is how many files a process may have open: data loaders, Ray and vLLM need thousands, and newer
	// versions of containerd give 1,024.
	wantedFiles = 1 << 20
	// stack is what NVIDIA's images ask for. A process may raise it.
	stack = 64 << 20
	// unlimited memory may be locked, as RDMA and pinned memory do: the memory of the node is limited as a whole.
	unlimited = -1
)

func ulimits() []*units.Ulimit {
	files := atMost(unix.RLIMIT_NOFILE, wantedFiles)
	if b, err := os.ReadFile("/proc/sys/fs/nr_open"); err == nil {
		if most, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
			files = min(files, most)
		}
	}
	locked := atMost(unix.RLIMIT_MEMLOCK, unlimited)
	stackHard := atMost(unix.RLIMIT_STACK, unlimited)
	stackSoft := int64(stack)
	if stackHard != unlimited {
		stackSoft = min(stackSoft, stackHard)
	}
	return []*units.Ulimit{{Name: "nofile", Soft: files, Hard: files}, {Name: "memlock", Soft: locked, Hard: locked},
		{Name: "stack", Soft: stackSoft, Hard: stackHard}}
}

// atMost returns the wanted limit, or this process's own hard limit where that is lower and this machine's root may not
// raise it, because the machine is a container itself: the start would fail.
func atMost(resource int, wanted int64) int64 {
	may, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	var own unix.Rlimit
	if err != nil || may != 0 || unix.Getrlimit(resource, &own) != nil || own.Max > math.MaxInt64 {
		return wanted
	}
	if most := int64(own.Max); wanted == unlimited || most < wanted {
		return most
	}
	return wanted
}
