package cli

import (
	"os"

	"github.com/musterhq/muster/agent/guest"
	"github.com/musterhq/muster/agent/guest/barrier"
	"github.com/musterhq/muster/internal/agentapi"
)

func initialise(ref agentapi.LeaseRef, devices, command []string) int {
	return barrier.Init{
		Ref:     ref,
		NodeDir: guest.NodeDir,
		Devices: devices,
		Command: command,
		Env:     os.Environ(),
		Stderr:  os.Stderr,
	}.Run()
}
