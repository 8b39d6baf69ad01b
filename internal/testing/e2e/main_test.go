package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// bin is the folder of the programs under test.
var bin string

// ground is where all platforms of this run keep their state.
var ground string

func TestMain(m *testing.M) {
	if natsProcess() {
		return
	}
	// The fleets of these tests are a few GPUs, and their renters are new: half of a model is too few for them.
	if err := os.Setenv("MUSTER_START_MARKET_PPM", "1000000"); err != nil {
		panic(err)
	}
	// What these tests find depends on the machine, too: Go does not answer from its cache when this has changed.
	_ = os.Getenv("MUSTER_TEST_RUN")
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if os.Geteuid() != 0 {
		return 1,
			errors.New("containers, network namespaces and the firewall need root: run `make test` as root or with sudo")
	}
	// PostgreSQL does not run as root, and has to reach its data: everybody may pass through.
	if ground, err = os.MkdirTemp("/var/tmp", "muster-e2e-"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(ground)) }()
	if err := os.Chmod(ground, 0o711); err != nil {
		return 1, err
	}
	fresh := filepath.Join(ground, "fresh") // for a parallel run it is a lock only once we have it
	used, err := use(fresh)
	if err == nil {
		err = os.Rename(fresh, filepath.Join(ground, "lock"))
	}
	if err != nil {
		return 1, err
	}
	defer used.Close()
	if bin, err = programs(); err != nil {
		return 1, err
	}
	sweep()
	code = m.Run()
	if shared.p != nil {
		err = shared.p.down()
	}
	return code, err
}

// use takes the lock of a run's folder until the file is closed, by us or by the kernel after our end.
func use(lock string) (*os.File, error) {
	f, err := os.OpenFile(lock, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweep takes down what runs before this one have left that were killed: they would cost us disk and processors.
func sweep() {
	locks, _ := filepath.Glob("/var/tmp/muster-e2e-*/lock")
	for _, l := range locks {
		dir := filepath.Dir(l)
		used, err := use(l)
		if err != nil {
			continue // it is in use: by us, or by a parallel run
		}
		states, _ := filepath.Glob(filepath.Join(dir, "*", "state.json"))
		for _, s := range states {
			if out, err := exec.Command(filepath.Join(bin, "muster"), "dev", "--down",
				filepath.Dir(s)).CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "e2e: what an earlier run left in %s: %v: %s\n", filepath.Dir(s), err, out)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
		}
		used.Close()
	}
}

// programs finds what `make build` made, or builds it.
func programs() (string, error) {
	if dir := os.Getenv("MUSTER_BIN"); dir != "" {
		return filepath.Abs(dir)
	}
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		return "", err
	}
	dir := filepath.Join(ground, "bin")
	for name, cgo := range map[string]string{
		"muster":          "0",
		"muster-agent":    "1",
		"muster-guest":    "0",
		"muster-demo-job": "0",
	} {
		args := []string{"build", "-o", filepath.Join(dir, name)}
		if cgo == "1" {
			args = append(args, "-ldflags", "-extldflags=-Wl,-z,lazy") // NVML's newer symbols may be missing
		}
		cmd := exec.Command("go", append(args, "./cmd/"+name)...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED="+cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	cmd := exec.Command(filepath.Join(root, "agent/machine/gpu/fakenvml/build.sh"),
		filepath.Join(dir, "fakenvml", "libnvidia-ml.so.1"))
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the fake NVML library: %w\n%s", err, out)
	}
	return dir, nil
}

// shared is the platform of the tests that only rent and look. It comes up with the first of them.
var shared struct {
	once sync.Once
	p    *platform
	err  error
}

func sharedPlatform(t *testing.T) *platform {
	t.Helper()
	shared.once.Do(func() { shared.p, shared.err = start(filepath.Join(ground, "shared"), "--scratch-gb", "4") })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(shared.p.story())
		}
	})
	return shared.p
}
