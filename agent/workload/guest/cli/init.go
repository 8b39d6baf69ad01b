package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/agent/workload/guest/barrier"
	"github.com/musterhq/muster/internal/agentapi"
)

// initialise runs a workload's init; args are its options and, after "--", the command.
func initialise(ref agentapi.LeaseRef, args []string) int {
	fl := flag.NewFlagSet("init", flag.ContinueOnError)
	fl.SetOutput(io.Discard)
	devices := fl.String("devices", "", "")
	gpus := fl.String("gpus", "", "")
	fake := fl.Bool("fake-cuda", false, "")
	nccl := fl.String("nccl", "", "")
	if err := fl.Parse(args); err != nil || fl.NArg() == 0 {
		return usage()
	}
	i := barrier.Init{
		Ref:     ref,
		NodeDir: guest.NodeDir,
		JobDir:  guest.JobDir,
		Devices: list(*devices),
		Command: fl.Args(),
		Env:     os.Environ(),
		Stderr:  os.Stderr,
	}
	if g := list(*gpus); len(g) > 0 {
		i.GPUs = &gpucheck.Check{Command: append(gpucheck.InContainer(*fake), "--ring=false"), GPUs: g}
	}
	if *nccl != "" {
		i.Reduce = &gpucheck.Reduce{Command: gpucheck.ReduceInContainer(*fake)}
		if err := json.Unmarshal([]byte(*nccl), &i.Reduce.Request); err != nil {
			return usage()
		}
	}
	return i.Run()
}

// checkGPUs checks GPUs in a container made for it.
func checkGPUs(args []string) int {
	if len(args) == 2 && args[0] == "--devices" {
		return printResult(barrier.CheckDevices(list(args[1])), nil)
	}
	fake := len(args) == 2 && args[1] == "--fake-cuda"
	if len(args) != 1 && !fake {
		return usage()
	}
	return printResult(gpucheck.Check{Command: gpucheck.InContainer(fake), GPUs: list(args[0])}.Run(context.Background()))
}

func printResult(res gpucheck.Result, err error) int {
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(res)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "muster-guest:", err)
		return guest.ExitBroken
	}
	return 0
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
