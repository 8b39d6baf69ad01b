// Command musterd is the control plane, and the whole platform on one machine. It also has the command line of muster,
// whose reference the control plane serves.
package main

import (
	"context"
	"os"

	"github.com/musterhq/muster/internal/cli"
	"github.com/musterhq/muster/internal/cli/platform"
)

// version is set by the linker: -X main.version=….
var version = "dev"

func main() {
	p := cli.Program{Version: version, Platform: platform.Commands}
	os.Exit(p.Run(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
