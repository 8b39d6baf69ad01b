package gpu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/agent/machine/hostinfo"
)

// GivePowerBack restores the default power limit of every GPU whose limit the agent has set. It is for the removal of
// the agent. No Monitor may use cfg's state. The driver is called only if there is a limit to restore; a limit ends
// with the boot, and with a GPU that is no longer there. GivePowerBack goes on after an error and returns all of them;
// calling it again is no error.
func GivePowerBack(ctx context.Context, cfg Config) error {
	if err := cfg.defaults(); err != nil {
		return err
	}
	of := makerOf(cfg)
	boot, err := hostinfo.BootID()
	if err != nil {
		return err
	}
	store, mem, err := openStore(cfg.StateDir)
	if err != nil {
		return err
	}
	probe := newProber(withVendor(cfg, of), of.driver(), func(wire.Request, time.Time) {})
	defer probe.close()
	var errs []error
	for _, uuid := range slices.Sorted(maps.Keys(mem.GPUs)) {
		r := mem.GPUs[uuid]
		if r.PowerSet == 0 {
			continue
		}
		if r.Seen == boot {
			var refusal *wire.Error
			err := probe.request(ctx, wire.Request{Method: wire.MethodPower, GPU: uuid, Milliwatts: wire.DefaultPower}, nil)
			gone := errors.As(err, &refusal) && (refusal.Code == wire.CodeNotFound || refusal.Code == wire.CodeGPULost)
			if err != nil && !gone {
				errs = append(errs, fmt.Errorf("GPU %d keeps its power limit of %d W (nvidia-smi or amd-smi sets it): %w",
					r.GPU.Index, r.PowerSet/1000, err))
				continue
			}
		}
		r.PowerSet = 0
		errs = append(errs, store.save(mem))
	}
	return errors.Join(errs...)
}
