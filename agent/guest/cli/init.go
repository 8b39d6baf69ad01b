package cli

import (
	"os"

	"github.com/musterhq/muster/agent/guest"
	"github.com/musterhq/muster/agent/guest/barrier"
	"github.com/musterhq/muster/internal/agentapi"
)

func initialise(ref agentapi.LeaseRef, command []string) int {
	return barrier.Init{Ref: ref, NodeDir: guest.NodeDir, Command: command, Env: os.Environ(), Stderr: os.Stderr}.Run()
}
