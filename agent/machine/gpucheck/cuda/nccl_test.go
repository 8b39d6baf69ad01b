package cuda

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/agent/machine/gpucheck/fakecuda"
	"github.com/musterhq/muster/internal/agentapi"
)

// freePort returns a port that nothing listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// measureTogether runs a measurement of two nodes with the given GPUs and faults, and returns what each found. Nodes of
// which come is false do not take part.
func measureTogether(t *testing.T, gpus []string, faults [2][]string, come [2]bool,
	change func(*gpucheck.Reduce)) [2]agentapi.NCCL {
	t.Helper()
	port := freePort(t)
	var out [2]agentapi.NCCL
	var wg sync.WaitGroup
	for rank := range 2 {
		if !come[rank] {
			continue
		}
		profile := filepath.Join(t.TempDir(), fmt.Sprint("gpus", rank))
		if err := fakecuda.Save(profile, gpus, faults[rank]...); err != nil {
			t.Fatal(err)
		}
		r := gpucheck.Reduce{
			Command: append(program(t, profile), "nccl", "--library", fake, "--nccl", fakeNCCL, "--memory", "1"),
			Request: gpucheck.ReduceRequest{Rank: rank, Addresses: []string{"127.0.0.1", "127.0.0.1"}, Port: port,
				JoinMS: 60_000, Env: map[string]string{"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"}},
			Limit: time.Minute,
		}
		if change != nil {
			change(&r)
		}
		wg.Go(func() { out[rank] = r.Run(t.Context()) })
	}
	wg.Wait()
	return out
}

var (
	both = [2]bool{true, true}
	pair = []string{gpuA, gpuB}
)

// Two nodes add up memory of their GPUs together: the sums are right, and the result says how fast, over which
// transport, and with how many ports.
func TestNodesReduceTogether(t *testing.T) {
	t.Parallel()
	for rank, n := range measureTogether(t, pair, [2][]string{}, both, nil) {
		if n.Kind != "" || n.Fails() {
			t.Fatalf("rank %d: %+v", rank, n)
		}
		if n.BusbwGbps <= 0 || n.LocalGbps <= 0 || n.Ranks != 4 || n.Bytes != 1<<20 || n.Seconds <= 0 ||
			n.Version != "2.21.5" || n.Net != "IB" || n.Rails != 2 || !n.GDR {
			t.Errorf("rank %d: %+v", rank, n)
		}
		want := float64(n.Bytes) * 8 / n.Seconds / 1e9 * 2 * 3 / 4 // as nccl-tests define the bus bandwidth, for four ranks
		if d := n.BusbwGbps/want - 1; d > 1e-9 || d < -1e-9 {
			t.Errorf("rank %d: %g Gbit/s, by its bytes and seconds %g", rank, n.BusbwGbps, want)
		}
	}
}

// Each failure of NCCL has its kind and a sentence that names the cause. A failure that shows nothing about the network
// does not keep the workload from starting.
func TestReduceFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults [2][]string
		kind   [2]string
		detail string // of rank 1
	}{
		"no RDMA device on one host": {[2][]string{{"nccl hang ncclGroupEnd"}, {"nccl noib"}},
			[2]string{"", agentapi.NCCLNoRDMA}, "NCCL finds none of the RDMA ports"},
		"it sends over TCP": {[2][]string{{"nccl socket"}, {"nccl socket"}},
			[2]string{agentapi.NCCLNoRDMA, agentapi.NCCLNoRDMA}, `NCCL sent over "Socket"`},
		"wrong sums": {[2][]string{nil, {"nccl wrong"}}, [2]string{"*", agentapi.NCCLWrong}, "instead of"},
		"too old": {[2][]string{{"nccl version 21700"}, {"nccl version 21700"}},
			[2]string{agentapi.NCCLSetup, agentapi.NCCLSetup}, "NCCL 2.17.0 is older than 2.18.0"},
		"different versions": {[2][]string{nil, {"nccl version 21800"}}, [2]string{agentapi.NCCLSetup, agentapi.NCCLSetup},
			"rank 1 has NCCL 2.18.0 and rank 0 has 2.21.5"},
		"the start fails": {[2][]string{{"nccl error ncclCommInitRank 2"}, {"nccl error ncclCommInitRank 2"}},
			[2]string{agentapi.NCCLSetup, agentapi.NCCLSetup}, "ncclCommInitRank: unhandled system error"},
		"no id": {[2][]string{{"nccl error ncclGetUniqueId 3"}, {"nccl error ncclGetUniqueId 3"}},
			[2]string{agentapi.NCCLSetup, agentapi.NCCLSetup}, "ncclGetUniqueId: internal error"},
		"the library crashes": {[2][]string{{"nccl crash ncclGetVersion"}, {"nccl crash ncclGetVersion"}},
			[2]string{agentapi.NCCLSetup, agentapi.NCCLSetup}, "ended early"},
		"no CUDA": {[2][]string{{"error cuInit 802"}, {"error cuInit 802"}},
			[2]string{agentapi.NCCLSetup, agentapi.NCCLSetup}, "cuInit: CUDA_ERROR_SYSTEM_NOT_READY"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.kind[0] == "" { // only rank 1's result counts, which needs no other
				c.faults[0] = nil
			}
			got := measureTogether(t, pair, c.faults, both, func(r *gpucheck.Reduce) {
				if c.kind[0] == "" {
					r.Request.JoinMS = 1000
				}
			})
			for rank, n := range got {
				if want := c.kind[rank]; n.Kind != want && want != "" && want != "*" {
					t.Errorf("rank %d: %q, want %q: %s", rank, n.Kind, want, n.Detail)
				}
				setup := n.Kind == agentapi.NCCLSetup || n.Kind == agentapi.NCCLPeers || n.Kind == ""
				if n.Fails() == setup || (n.Kind != "" && n.BusbwGbps != 0) {
					t.Errorf("rank %d: %+v", rank, n)
				}
			}
			if !strings.Contains(got[1].Detail, c.detail) {
				t.Errorf("not said that %q: %s", c.detail, got[1].Detail)
			}
		})
	}
}

// A node whose peers do not come gives up, and nothing follows.
func TestPeersThatDoNotCome(t *testing.T) {
	t.Parallel()
	for rank := range 2 {
		got := measureTogether(t, pair, [2][]string{}, [2]bool{rank == 0, rank == 1}, func(r *gpucheck.Reduce) {
			r.Request.JoinMS = 300
		})[rank]
		if got.Kind != agentapi.NCCLPeers || got.Fails() || !strings.Contains(got.Detail, "not all nodes came") {
			t.Errorf("rank %d: %+v", rank, got)
		}
	}
}

// A measurement that does not end is killed, and fails with the step that it was at.
func TestAReduceThatHangs(t *testing.T) {
	t.Parallel()
	short := func(r *gpucheck.Reduce) { r.Limit = 20 * time.Second } // a busy machine reaches the step in this time, too
	hangs := [2][]string{{"nccl hang ncclAllReduce"}, {"nccl hang ncclAllReduce"}}
	t.Run("without the others", func(t *testing.T) {
		t.Parallel()
		for rank, n := range measureTogether(t, pair, hangs, both, short) {
			if n.Kind != agentapi.NCCLSetup || !strings.Contains(n.Detail, "all-reduce within the node: no end within") {
				t.Errorf("rank %d: %+v", rank, n)
			}
		}
	})
	t.Run("with the others", func(t *testing.T) {
		t.Parallel()
		for rank, n := range measureTogether(t, []string{gpuA}, hangs, both, short) {
			if n.Kind != agentapi.NCCLHang || !n.Fails() || !strings.Contains(n.Detail, "sums: no end within 20s") {
				t.Errorf("rank %d: %+v", rank, n)
			}
		}
	})
}

// A network that is slower than was asked for fails the start.
func TestAReduceThatIsTooSlow(t *testing.T) {
	t.Parallel()
	slow := func(r *gpucheck.Reduce) { r.Request.MinGbps = 1e9 }
	for rank, n := range measureTogether(t, pair, [2][]string{}, both, slow) {
		if n.Kind != agentapi.NCCLSlow || !n.Fails() || n.BusbwGbps <= 0 ||
			!strings.Contains(n.Detail, "1e+09 were asked for") {
			t.Errorf("rank %d: %+v", rank, n)
		}
	}
}

// The check's folder gets the operator's NCCL, or the agent says why not.
func TestNCCLIsBroughtAlong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cuda := filepath.Join(dir, "libcuda.so.1")
	for path, text := range map[string]string{cuda: "fake", cuda + ".gpus": "gpu GPU-1\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := gpucheck.Prepare(filepath.Join(dir, "state"), cuda, fakeNCCL)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libnccl.so.2", "libcuda.so.1", "gpus", "muster-agent", "ld.so"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	if without, err := gpucheck.Prepare(filepath.Join(dir, "state"), cuda, ""); err != nil || without == out {
		t.Errorf("%s with and without NCCL (%v)", without, err)
	}
	_, err = gpucheck.Prepare(filepath.Join(dir, "state"), cuda, cuda)
	if err == nil || !strings.Contains(err.Error(), cuda) {
		t.Errorf("a file that is no library: %v", err)
	}
}
