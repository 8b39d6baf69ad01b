package e2e

import (
	"fmt"
	"os"

	natsserver "github.com/nats-io/nats-server/v2/server"
)

// envNATS has this program be a NATS server with the configuration in the named file, as nats-server -c is.
const envNATS = "MUSTER_TEST_NATS_SERVER"

// natsProcess is a NATS server until it is killed, if the environment asks for one.
func natsProcess() bool {
	conf := os.Getenv(envNATS)
	if conf == "" {
		return false
	}
	o, err := natsserver.ProcessConfigFile(conf)
	if err == nil {
		var s *natsserver.Server
		if s, err = natsserver.NewServer(o); err == nil {
			s.ConfigureLogger()
			s.Start()
			s.WaitForShutdown()
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return true
}
