package fakeprofile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// Reset resets a simulated GPU as nvidia-smi --gpu-reset does: it is refused while persistence mode or any process
// has the GPUs open. It clears what a real reset clears: a row that waits to be remapped, error counts, the recovery
// action, a pending MIG mode, the instances of a split GPU, its power limit. The GPU then registers with its
// NVSwitches again, which takes FabricSettles calls. A GPU that must be replaced, or is off the bus, stays as it is.
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
		case g.Persistence == 1:
			return fmt.Errorf("GPU %s is in use by another client: persistence mode", uuid)
		}
		g.FabricWait, g.Instances = g.FabricSettles, nil
		g.ECCUncorrectable, g.RemapPending, g.RecoveryAction = 0, 0, min(g.RecoveryAction, 0)
		if g.MIGPending >= 0 {
			g.MIG, g.MIGPending = g.MIGPending, -1
		}
		if err := os.Remove(profilePath + ".power-" + uuid); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// SMI returns nvidia-smi for the simulated GPUs, as far as the agent uses it for a reset: it reads and sets persistence
// mode and resets a GPU, which "-i" names by its UUID.
func SMI(profilePath string) func(ctx context.Context, args ...string) (string, error) {
	return func(ctx context.Context, args ...string) (string, error) {
		i := slices.Index(args, "-i")
		if i < 0 || i+1 == len(args) || ctx.Err() != nil {
			return "", errors.Join(errors.New("no GPU is named"), ctx.Err())
		}
		uuid, out := args[i+1], ""
		switch args[0] {
		case "--gpu-reset":
			return "", Reset(profilePath, uuid)
		case "--query-gpu=persistence_mode", "-pm":
		default:
			return "", fmt.Errorf("unknown option %s", args[0])
		}
		return out, Change(profilePath, func(p *Profile) error {
			g := p.GPU(uuid)
			switch {
			case g == nil:
				return fmt.Errorf("no GPU has the UUID %s", uuid)
			case args[0] != "-pm":
				out = map[int64]string{0: "Disabled\n", 1: "Enabled\n"}[g.Persistence]
			case g.Persistence < 0:
				return fmt.Errorf("persistence mode of %s cannot be set", uuid)
			default:
				var err error
				g.Persistence, err = strconv.ParseInt(args[1], 10, 64)
				return err
			}
			return nil
		})
	}
}
