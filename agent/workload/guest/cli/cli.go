// Package cli is the muster-guest command, the one binary that is injected into every node. It is static and does one
// of these:
//
//	muster-guest hold LEASE EPOCH                           the guest container's main process
//	muster-guest init LEASE EPOCH [--devices PATHS] -- COMMAND…   the workload's PID 1
//	muster-guest exec home|workdir COLS ROWS [-- COMMAND]   a shell, or a command by the shell
//	muster-guest sftp                                       an sftp server on standard input and output
//	muster-guest socket PATH                                joins standard input and output with a Unix socket
//	muster-guest rshd                                       runs commands for the cluster's other ranks
//	muster-guest checkpoint DIR                             makes a folder of a volume durable
//	muster-guest durable                                    prints what is durable
//	muster-guest rsh HOST COMMAND…                          runs one on another rank, with ssh's arguments
//	ssh HOST COMMAND…                                       the same under ssh's name; other hosts by the image's ssh
//
// Except for checkpoint, it takes no flags. It reads no configuration: what it works on is mounted at fixed places
// (agent/workload/guest).
package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
)

// Main executes the command line of a process, by the name that it was started with, and returns the exit code.
func Main(argv []string) int {
	if len(argv) > 0 && filepath.Base(argv[0]) == "ssh" {
		return ssh(argv[1:])
	}
	return execute(argv[min(1, len(argv)):])
}

// execute runs one command line and returns the exit code.
func execute(args []string) int {
	switch {
	case len(args) == 1 && args[0] == "sftp":
		return serveFiles()
	case len(args) == 2 && args[0] == "socket":
		return connectSocket(args[1])
	case len(args) == 1 && args[0] == "rshd":
		return serveRanks()
	case len(args) > 0 && args[0] == "checkpoint":
		return makeCheckpoint(args[1:])
	case len(args) > 0 && args[0] == "durable":
		return durable(args[1:])
	case len(args) > 1 && args[0] == "rsh":
		return runOnRank(args[1:])
	case len(args) > 1 && args[0] == "exec":
		return become(args[1:])
	case len(args) > 1 && args[0] == "gpucheck":
		return checkGPUs(args[1:])
	case len(args) < 3:
		return usage()
	}
	epoch, err := strconv.Atoi(args[2])
	if err != nil {
		return usage()
	}
	ref := agentapi.LeaseRef{Lease: args[1], Epoch: epoch}
	switch {
	case args[0] == "hold" && len(args) == 3:
		return hold(ref)
	case args[0] == "init":
		return initialise(ref, args[3:])
	}
	return usage()
}

func usage() int {
	fmt.Fprintln(os.Stderr, "usage: muster-guest hold LEASE EPOCH | init LEASE EPOCH [--devices PATHS] [--gpus UUIDS] "+
		"-- COMMAND… | "+
		"gpucheck UUIDS | gpucheck --devices PATHS | "+
		"exec home|workdir "+
		"COLS ROWS [-- COMMAND] | checkpoint DIR | durable | sftp | socket PATH | rshd | rsh HOST COMMAND…")
	return guest.ExitBroken
}
