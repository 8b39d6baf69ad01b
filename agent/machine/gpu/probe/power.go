package probe

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// power sets a GPU's power limit to mw milliwatts, or with wire.DefaultPower to its default. A limit that has this
// value already is not set again.
func (p *probe) power(d nvml.Device, mw int64) (wire.Power, *wire.Error) {
	read := func(symbol string, f func() (uint32, nvml.Return)) (int64, *wire.Error) {
		v, err := call(p, symbol, f)
		return int64(v), err
	}
	var w wire.Power
	var err *wire.Error
	if mw == wire.DefaultPower {
		if mw, err = read("nvmlDeviceGetPowerManagementDefaultLimit", d.GetPowerManagementDefaultLimit); err != nil {
			return w, err
		}
	}
	type bounds struct{ min, max uint32 }
	b, err := call(p, "nvmlDeviceGetPowerManagementLimitConstraints", func() (bounds, nvml.Return) {
		least, most, ret := d.GetPowerManagementLimitConstraints()
		return bounds{least, most}, ret
	})
	if err != nil {
		return w, err
	}
	const set = "nvmlDeviceSetPowerManagementLimit"
	if mw < int64(b.min) || mw > int64(b.max) {
		return w, &wire.Error{
			Code: int(nvml.ERROR_INVALID_ARGUMENT),
			Call: set,
			Text: fmt.Sprintf("the GPU takes limits from %d to %d W", b.min/1000, b.max/1000),
		}
	}
	if w.LimitMW, err = read("nvmlDeviceGetPowerManagementLimit", d.GetPowerManagementLimit); err != nil ||
		w.LimitMW == mw {
		return w, err
	}
	if _, err := call(p, set, func() (struct{}, nvml.Return) {
		return struct{}{}, d.SetPowerManagementLimit(uint32(mw))
	}); err != nil {
		return w, err
	}
	w.LimitMW = mw
	return w, nil
}
