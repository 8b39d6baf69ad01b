package probe

import (
	"encoding/json"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Call is one call of NVML: its return code as the library gave it, and its value.
type Call struct {
	GPU   string          `json:"gpu,omitempty"` // UUID; "" = of the whole driver
	Call  string          `json:"call"`
	Code  int             `json:"code"`            // nvmlReturn_t; 13 also if the library does not have the function
	Value json.RawMessage `json:"value,omitempty"` // of a call that succeeded, as go-nvml returns it
}

// Record makes every read-only call that the agent makes of the NVML library at a path ("" = where the loader finds
// it), of the driver and of each GPU, and returns what the library answered. A call that hangs hangs Record.
func Record(libraryPath string) []Call {
	var opts []nvml.LibraryOption
	if libraryPath != "" {
		opts = append(opts, nvml.WithLibraryPath(libraryPath))
	}
	p := &probe{lib: nvml.New(opts...), has: map[string]bool{}, handles: map[string]nvml.Device{}}
	out := []Call{}
	uuid := ""
	p.record = func(symbol string, ret nvml.Return, value any) {
		c := Call{GPU: uuid, Call: symbol, Code: int(ret)}
		if _, handle := value.(nvml.Device); ret == nvml.SUCCESS && !handle {
			if b, err := json.Marshal(value); err == nil && string(b) != "{}" {
				c.Value = b
			}
		}
		out = append(out, c)
	}
	if err := p.Start(); err != nil {
		return append(out, Call{Call: err.Call, Code: err.Code})
	}
	defer p.lib.Shutdown()
	sys, err := p.system()
	if err != nil {
		return out
	}
	for _, device := range sys.Devices {
		uuid = device.UUID
		d, err := p.device(device.UUID, device.PCI)
		if err != nil {
			continue
		}
		_, _ = p.describe(d)
		_, _ = p.peers(d)
		_, _ = p.condition(d)
		_, _ = p.sample(d)
		_, _ = p.use(d)
	}
	return out
}
