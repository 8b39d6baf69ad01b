// Command muster is the command line of renters, host operators and admins. For muster server, dev and demo it starts
// musterd.
package main

import (
	"context"
	"os"

	"github.com/musterhq/muster/internal/cli"
)

// version is set by the linker: -X main.version=….
var version = "dev"

func main() {
	p := cli.Program{Version: version, Platform: cli.Handoff}
	os.Exit(p.Run(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
