// Command muster is the control plane, the command line of renters, host operators and admins, and the whole platform
// on one machine.
package main

import (
	"context"
	"os"

	"github.com/musterhq/muster/internal/cli"
)

// version is set by the linker: -X main.version=….
var version = "dev"

func main() {
	os.Exit(cli.Run(context.Background(), version, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
