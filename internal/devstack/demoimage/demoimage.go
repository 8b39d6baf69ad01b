// Package demoimage builds the demo's image out of a static binary, without a container engine, and pushes it.
package demoimage

import (
	"context"

	"github.com/musterhq/muster/internal/fault"
)

// Repository is the image's name in the registry.
const Repository = "muster/demo"

// Push builds the image around the program at jobPath (cmd/muster-demo-job, built static) and pushes it to the
// registry at addr (host:port). It returns the reference with tag "addr/muster/demo:latest" and the digest. The same
// binary gives the same digest; pushing again uploads nothing.
func Push(ctx context.Context, addr, jobPath string) (ref, digest string, err error) {
	return "", "", fault.New(fault.Unavailable, "not built yet")
}
