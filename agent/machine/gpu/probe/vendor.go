package probe

import (
	"context"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/agent/machine/gpu/device"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

var _ device.Vendor = (*probe)(nil)

// of calls f with the handle of the request's GPU.
func of[T any](p *probe, r wire.Request, f func(d nvml.Device) (T, *wire.Error)) (T, *wire.Error) {
	d, err := p.device(r.GPU, r.PCI)
	if err != nil {
		var zero T
		return zero, err
	}
	return f(d)
}

// Inventory returns the driver and what it lists.
func (p *probe) Inventory() (wire.System, *wire.Error) { return p.system() }

// Describe returns a GPU or a slice.
func (p *probe) Describe(r wire.Request) (wire.Description, *wire.Error) {
	if isSlice(r.GPU) {
		return of(p, r, p.describeSlice)
	}
	return of(p, r, p.describe)
}

// Peers returns how a GPU reaches the others.
func (p *probe) Peers(r wire.Request) ([]wire.Peer, *wire.Error) { return of(p, r, p.peers) }

// Sample returns what a GPU or a slice does now.
func (p *probe) Sample(r wire.Request) (wire.Sample, *wire.Error) {
	if isSlice(r.GPU) {
		return of(p, r, p.sampleSlice)
	}
	return of(p, r, p.sample)
}

// Condition returns the defects of a GPU. Those of a slice are its GPU's.
func (p *probe) Condition(r wire.Request) (wire.Condition, *wire.Error) {
	return of(p, r, func(d nvml.Device) (wire.Condition, *wire.Error) {
		if isSlice(r.GPU) {
			var err *wire.Error
			if d, err = p.parent(d); err != nil {
				return wire.Condition{}, err
			}
		}
		return p.condition(d)
	})
}

// Use returns who uses a GPU's memory.
func (p *probe) Use(r wire.Request) (wire.Use, *wire.Error) { return of(p, r, p.use) }

// SetPower sets a GPU's power limit.
func (p *probe) SetPower(r wire.Request) (wire.Power, *wire.Error) {
	return of(p, r, func(d nvml.Device) (wire.Power, *wire.Error) { return p.power(d, r.Milliwatts) })
}

// Remake destroys a slice of a GPU and makes it again.
func (p *probe) Remake(r wire.Request) (wire.Instance, *wire.Error) {
	made, err := of(p, r, func(d nvml.Device) (*wire.Instance, *wire.Error) { return p.remake(d, r.Like) })
	if err != nil {
		return wire.Instance{}, err
	}
	return *made, nil
}

// Reset is not done here: a GPU that this process has open cannot be reset. The monitor ends the process first.
func (p *probe) Reset(wire.Request) *wire.Error { return device.Unsupported(wire.MethodReset) }

// Watch starts to send Xids.
func (p *probe) Watch(ctx context.Context, send func(wire.Event)) { p.watch(ctx, send) }
