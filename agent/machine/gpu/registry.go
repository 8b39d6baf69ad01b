package gpu

import (
	"log/slog"
	"os"
	"sync"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// registry holds what is known of the host's GPUs, with the lock around it, and what every part of a Monitor needs.
type registry struct {
	cfg     Config
	maker   maker
	log     *slog.Logger
	boot    string
	changed chan struct{}
	kick    chan struct{} // requests a look at all GPUs now

	looking sync.Mutex // held during a look at the GPUs; taken before mu

	mu      sync.Mutex // guards the fields below, and those of the parts that say so
	store   store
	mem     memory
	blind   error // why the driver does not answer at present; nil: it answers
	sys     wire.System
	fabrics map[string]wire.Fabric // registrations with NVSwitches, of GPUs that have any
}

// known returns copies of the records of GPUs seen since boot.
func (reg *registry) known() map[string]record {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	out := map[string]record{}
	for uuid, r := range reg.mem.GPUs {
		if r.Seen == reg.boot {
			out[uuid] = *r
		}
	}
	return out
}

// wsl reports whether this is Linux within Windows: its GPUs belong to Windows, and neither the PCI bus nor the driver
// shows what the health checks need. reg.mu is held.
func (reg *registry) wsl() bool {
	path := reg.cfg.DXG
	if path == "" && !reg.sys.Simulated {
		path = dxg
	}
	_, err := os.Stat(path)
	return path != "" && err == nil
}

// dxg is the device through which Linux within Windows (WSL2) reaches the GPUs.
const dxg = "/dev/dxg"

// save stores what is known. A disk that fails must not end the health checks. reg.mu is held.
func (reg *registry) save() {
	if err := reg.store.save(reg.mem); err != nil {
		reg.log.Error("GPU health is not kept", "err", err)
	}
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
