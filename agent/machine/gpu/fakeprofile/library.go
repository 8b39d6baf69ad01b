package fakeprofile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// BuildLibrary compiles the fake library to the file out, for tests. It needs gcc, and a working directory within the
// repository. omit lists the symbols to leave out, as in an older driver's library.
func BuildLibrary(out string, omit ...string) error {
	root, err := repository()
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(root, "agent/machine/gpu/fakenvml/build.sh"), append([]string{out}, omit...)...)
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the fake NVML library: %w\n%s", err, b)
	}
	return nil
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
