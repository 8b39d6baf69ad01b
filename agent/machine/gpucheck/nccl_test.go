package gpucheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// NCCL opens RDMA devices with libibverbs and a driver of theirs, which are named to it by their places.
func TestVerbsDrivers(t *testing.T) {
	for want, files := range map[bool]map[string]string{
		true:  {"libibverbs.so.1": "/lib/libibverbs.so.1", "libmlx5-rdmav34.so": "/lib/libibverbs/libmlx5-rdmav34.so"},
		false: {"libibverbs.so.1": "/lib/libibverbs.so.1"},
	} {
		if hasVerbs(files) != want {
			t.Errorf("%v can open RDMA devices: %v", files, !want)
		}
	}
	verbs := t.TempDir()
	for _, name := range []string{"libmlx5-rdmav34.so", "librxe-rdmav34.so", "libibverbs.so.1"} {
		if err := os.WriteFile(filepath.Join(verbs, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := verbsDrivers(verbs), verbs+"/libmlx5:"+verbs+"/librxe"; got != want {
		t.Errorf("IBV_DRIVERS=%s, want %s", got, want)
	}
}

// Nothing is measured in an image that loads a library into every program.
func TestPreloadsAreNotMeasuredWith(t *testing.T) {
	was := preloads
	preloads = filepath.Join(t.TempDir(), "ld.so.preload")
	defer func() { preloads = was }()
	if err := os.WriteFile(preloads, []byte("/lib/evil.so\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	n := Reduce{Command: []string{"/bin/false"}}.Run(t.Context())
	if n.Kind != agentapi.NCCLSetup || n.Fails() || !strings.Contains(n.Detail, preloads) {
		t.Errorf("%+v", n)
	}
}

// The program gets the variables of NCCL that the agent gives, and no others.
func TestNCCLsVariables(t *testing.T) {
	env := Reduce{Request: ReduceRequest{Env: map[string]string{"NCCL_IB_HCA": "=mlx5_0:1", "LD_PRELOAD": "/evil.so",
		"NCCL_DEBUG": "WARN"}}}.env()
	all := strings.Join(env, "\n") + "\n"
	if !strings.Contains(all, "NCCL_IB_HCA==mlx5_0:1\n") || !strings.Contains(all, "NCCL_NET=IB\n") ||
		!strings.Contains(all, "NCCL_DEBUG=INFO\n") || strings.Contains(all, "evil") || strings.Contains(all, "WARN") {
		t.Error(all)
	}
}

// NCCL 2.28.9 on an H200 without RDMA ports (docs/hardware/NVIDIA-H200/nccl.txt).
func TestNCCLWithoutRDMAPorts(t *testing.T) {
	b, err := os.ReadFile("../../../docs/hardware/NVIDIA-H200/nccl.txt")
	if err != nil {
		t.Fatal(err)
	}
	var l ncclLog
	for line := range strings.Lines(string(b)) {
		l.read(line)
	}
	if !l.none || l.net != "Socket" || l.warn != "" || len(l.rails) != 0 {
		t.Errorf("%+v", l)
	}
	n := agentapi.NCCL{Version: "2.28.9"}
	if l.judge(&n, ReduceRequest{}); n.Kind != agentapi.NCCLNoRDMA || !n.Fails() {
		t.Errorf("%+v", n)
	}
}
