package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/agent/workload/guest/preflight"
	"github.com/musterhq/muster/internal/agentapi"
)

// memory limits the heap so that the container's 64 MB have room for socket buffers during a preflight.
const memory = 40 << 20

func hold(ref agentapi.LeaseRef) int {
	debug.SetMemoryLimit(memory)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go reap()
	h := guest.Holder{Ref: ref, HoldDir: guest.HoldDir, NodeDir: guest.NodeDir, Measure: preflight.Keep}
	if err := h.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "muster-guest:", err)
		return guest.ExitBroken
	}
	return 0
}

// reap waits for children that were reparented to this process: PID 1 is the parent of every orphan in the container.
func reap() {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for range children {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 && err != syscall.EINTR {
				break
			}
		}
	}
}
