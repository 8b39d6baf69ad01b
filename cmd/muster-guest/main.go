// Command muster-guest is the one binary that is injected into every node; see package agent/workload/guest/cli.
package main

import (
	"os"

	"github.com/musterhq/muster/agent/workload/guest/cli"
)

func main() { os.Exit(cli.Main(os.Args)) }
