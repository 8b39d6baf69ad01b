// Package fakecuda builds a fake CUDA library for tests of the GPU check, and writes the file that drives it: which
// GPUs there are, and how they fail. See lib/fake.c.
package fakecuda

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Env is the environment variable that names the file to the library.
const Env = "MUSTER_FAKE_CUDA"

// Build compiles the library to the file out. It needs gcc, and a working directory within the repository.
func Build(out string) error { return build(out, "fake.c", "libcuda.so.1") }

// BuildNCCL compiles the fake NCCL for the same GPUs; see lib/nccl.c.
func BuildNCCL(out string) error { return build(out, "nccl.c", "libnccl.so.2") }

func build(out, source, name string) error {
	root, err := repository()
	if err != nil {
		return err
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	cmd := exec.Command(cc, "-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Wl,-soname,"+name,
		"-o", out, filepath.Join(root, "agent/machine/gpucheck/fakecuda/lib", source), "-lm", "-lpthread")
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the fake %s: %w\n%s", name, err, b)
	}
	return nil
}

// Save writes the file at path: GPUs with these UUIDs, and the lines of faults.
func Save(path string, uuids []string, faults ...string) error {
	var b strings.Builder
	for _, u := range uuids {
		fmt.Fprintln(&b, "gpu", u)
	}
	for _, f := range faults {
		fmt.Fprintln(&b, f)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func repository() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.Join(errors.New("not within the repository"), err)
}
