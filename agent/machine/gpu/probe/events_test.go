package probe

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// While a GPU is lost a driver answers every wait with that at once. It is reported once per set of present GPUs, and
// the waits become seldom; a driver that answers again is asked as often as before.
func TestEvents_ALostGPUIsReportedOnce(t *testing.T) {
	t.Parallel()
	lost := map[string]bool{"GPU-1": true}
	device := func(uuid string) nvml.Device {
		return &mock.Device{GetUUIDFunc: func() (string, nvml.Return) {
			if lost[uuid] {
				return "", nvml.ERROR_GPU_IS_LOST
			}
			return uuid, nvml.SUCCESS
		}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := 0
	set := &mock.EventSet{WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
		switch waits++; waits {
		case 10: // another one is lost
			lost["GPU-2"] = true
		case 14: // and the driver is well again
			return nvml.EventData{}, nvml.ERROR_TIMEOUT
		case 16:
			cancel()
		}
		return nvml.EventData{}, nvml.ERROR_GPU_IS_LOST
	}}
	var pauses []int
	p := &probe{has: map[string]bool{"nvmlEventSetWait": true, "nvmlDeviceGetUUID": true, "nvmlErrorString": false},
		sleep: func(_ context.Context, d time.Duration) { pauses = append(pauses, int(d/time.Second)) }}
	var events []int
	p.wait(ctx, func(e wire.Event) {
		if !e.Lost {
			t.Errorf("%+v", e)
		}
		events = append(events, waits)
	}, set, map[nvml.Device]string{device("GPU-1"): "GPU-1", device("GPU-2"): "GPU-2", device("GPU-3"): "GPU-3"})
	if !slices.Equal(events, []int{1, 10}) ||
		!slices.Equal(pauses, []int{1, 2, 4, 8, 16, 32, 60, 60, 60, 1, 2, 4, 8, 1, 2}) {
		t.Errorf("reported after waits %v; pauses of %v s", events, pauses)
	}
}
