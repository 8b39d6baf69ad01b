// Command muster-agent runs on every host: it rents out the machine's GPUs.
package main

import (
	"os"

	"github.com/musterhq/muster/agent/self/cli"
)

// version and releaseKeys are set by the linker: -X main.version=… -X main.releaseKeys=….
var (
	version     = "dev"
	releaseKeys string
)

func main() { os.Exit(cli.Main(cli.Build{Version: version, ReleaseKeys: releaseKeys})) }
