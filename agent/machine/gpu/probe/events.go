package probe

import (
	"context"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// watch starts, once, to wait for Xids and sends each as an event. A device that cannot send events (lost, or of a kind
// without events) is left out; the agent's polling covers it.
func (p *probe) watch(ctx context.Context, send func(wire.Event)) {
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.watching {
		return
	}
	set, err := call(p, "nvmlEventSetCreate", p.lib.EventSetCreate)
	if err != nil {
		return
	}
	n, err := call(p, "nvmlDeviceGetCount", p.lib.DeviceGetCount)
	if err != nil {
		return
	}
	uuids := map[nvml.Device]string{} // stored, because a GPU that reports its own loss no longer returns its UUID
	for i := range n {
		d, err := p.byIndex(i)
		if err != nil {
			continue
		}
		uuids[d], _ = call(p, "nvmlDeviceGetUUID", d.GetUUID)
		_, _ = call(p, "nvmlDeviceRegisterEvents", func() (struct{}, nvml.Return) {
			return struct{}{}, d.RegisterEvents(nvml.EventTypeXidCriticalError, set)
		})
	}
	p.watching = true
	go p.wait(ctx, send, set, uuids)
}

// wait runs until the process ends: a set that a call may still wait on must not be freed.
func (p *probe) wait(ctx context.Context, send func(wire.Event), set nvml.EventSet, uuids map[nvml.Device]string) {
	const poll = 1000 // ms
	for ctx.Err() == nil {
		data, err := call(p, "nvmlEventSetWait", func() (nvml.EventData, nvml.Return) { return set.Wait(poll) })
		switch {
		case err == nil && data.EventType == nvml.EventTypeXidCriticalError:
			if uuid := uuids[data.Device]; uuid != "" {
				e := wire.Event{GPU: uuid, Xid: int(data.EventData)}
				if id := int(data.GpuInstanceId); data.GpuInstanceId != noInstance {
					e.Instance = &id
				}
				send(e)
			}
			continue
		case err == nil || nvml.Return(err.Code) == nvml.ERROR_TIMEOUT:
			continue
		case err.Code == wire.CodeGPULost:
			send(wire.Event{Lost: true})
		case err.Code == wire.CodeFunctionNotFound:
			return
		}
		select { // errors return at once: do not spin
		case <-ctx.Done():
		case <-time.After(poll * time.Millisecond):
		}
	}
}
