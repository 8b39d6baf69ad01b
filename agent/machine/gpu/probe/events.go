package probe

import (
	"context"
	"slices"
	"strings"
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

// Numbers of waiting for events.
const (
	poll     = time.Second // longest time of one wait, and pause after an error
	maxPause = time.Minute // longest pause while a GPU is lost
)

// wait runs until the process ends: a set that a call may still wait on must not be freed. While a GPU is lost, a
// driver answers every wait with that at once, until the next boot: wait reports it once, and again when other GPUs
// are there, and waits ever more seldom.
func (p *probe) wait(ctx context.Context, send func(wire.Event), set nvml.EventSet, uuids map[nvml.Device]string) {
	reported, pause := "", time.Duration(0)
	for ctx.Err() == nil {
		data, err := call(p, "nvmlEventSetWait", func() (nvml.EventData, nvml.Return) {
			return set.Wait(uint32(poll / time.Millisecond))
		})
		if err == nil || err.Code != wire.CodeGPULost {
			pause = 0
		}
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
			if present := p.present(uuids); present != reported {
				reported, pause = present, 0
				send(wire.Event{Lost: true})
			}
		case err.Code == wire.CodeFunctionNotFound:
			return
		}
		pause = min(max(2*pause, poll), maxPause) // errors return at once: do not spin
		p.sleep(ctx, pause)
	}
}

// present names the GPUs of a set that still answer. It is not "" while there is a set.
func (p *probe) present(uuids map[nvml.Device]string) string {
	names := []string{"present"}
	for d, uuid := range uuids {
		if _, err := call(p, "nvmlDeviceGetUUID", d.GetUUID); err == nil {
			names = append(names, uuid)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
