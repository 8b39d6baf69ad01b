package fakeprofile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Clients returns the processes that have the simulated GPUs open: live processes that have started the library.
func Clients(profilePath string) ([]int, error) {
	dir := profilePath + ".clients"
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= 0 {
			continue
		}
		if err := syscall.Kill(pid, 0); err == nil || errors.Is(err, syscall.EPERM) {
			pids = append(pids, pid)
			continue
		}
		_ = os.Remove(filepath.Join(dir, e.Name())) // it was killed
	}
	return pids, nil
}

// Reset resets a simulated GPU as nvidia-smi --gpu-reset does: it is refused while any process has the GPUs open. It
// clears what a real reset clears: a row that waits to be remapped, error counts, the recovery action, a pending MIG
// mode. A GPU that must be replaced, or is off the bus, stays as it is.
func Reset(profilePath, uuid string) error {
	pids, err := Clients(profilePath)
	if err != nil {
		return err
	}
	if len(pids) > 0 {
		return fmt.Errorf("GPU %s is in use by another client: processes %v", uuid, pids)
	}
	return Change(profilePath, func(p *Profile) error {
		g := p.GPU(uuid)
		switch {
		case g == nil:
			return fmt.Errorf("no GPU has the UUID %s", uuid)
		case g.Lost != 0 || g.Absent != 0:
			return fmt.Errorf("GPU %s has fallen off the bus", uuid)
		}
		g.ECCUncorrectable, g.RemapPending, g.RecoveryAction = 0, 0, min(g.RecoveryAction, 0)
		if g.MIGPending >= 0 {
			g.MIG, g.MIGPending = g.MIGPending, -1
		}
		return nil
	})
}
