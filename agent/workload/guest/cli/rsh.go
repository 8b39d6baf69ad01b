package cli

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/agent/workload/guest/rsh"
	"github.com/musterhq/muster/internal/agentapi"
)

// serveRanks answers the cluster's ranks at this rank's own address, which may appear a moment after this process
// starts.
func serveRanks() int {
	ranks := rsh.Ranks("/etc/hosts")
	name, err := os.ReadFile("/etc/hostname") // set by the platform; a renter may set NODE_RANK and the like
	own, ok := ranks[strings.TrimSpace(string(name))]
	if err != nil || !ok {
		fmt.Fprintln(os.Stderr, "muster: this rank has no address of its own")
		return guest.ExitBroken
	}
	var l net.Listener
	for try := 0; l == nil; try++ {
		var err error
		if l, err = net.Listen("tcp", net.JoinHostPort(own.String(), strconv.Itoa(rsh.Port))); err == nil {
			break
		}
		if try == 50 {
			fmt.Fprintln(os.Stderr, "muster:", err)
			return guest.ExitBroken
		}
		time.Sleep(200 * time.Millisecond)
	}
	s := rsh.Server{Program: "/proc/self/exe", Env: os.Environ(), Args: func(r rsh.Request) []string {
		q := agentapi.ExecRequest{Kind: agentapi.ExecCommand, Command: r.Command}
		if r.Command == "" {
			q.Kind = agentapi.ExecLogin
		}
		return guest.ExecArgs(q)[1:]
	}, Peer: func(ip net.IP) bool {
		for _, a := range ranks {
			if a.Equal(ip) {
				return true
			}
		}
		return false
	}}
	if err := s.Serve(l); err != nil {
		fmt.Fprintln(os.Stderr, "muster:", err)
		return guest.ExitBroken
	}
	return 0
}

func runOnRank(args []string) int {
	a, err := rsh.Parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "muster:", err)
		return rsh.ExitLost
	}
	return run(a)
}

func run(a rsh.Arguments) int {
	var in io.Reader = os.Stdin
	if a.NoInput {
		in = nil
	}
	return rsh.Run(a.Address(), a.Request, in, os.Stdout, os.Stderr)
}
