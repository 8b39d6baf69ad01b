package cuda

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/machine/gpucheck"
)

// Main is the program: it writes progress and, at last, the result to out, a JSON object a line. It returns the exit
// code: 0 if a result was written, whatever it is.
func Main(args []string, out, errs io.Writer) int {
	if len(args) > 0 && args[0] == "nccl" {
		return reduceMain(args[1:], out, errs)
	}
	fl := flag.NewFlagSet("gpucheck", flag.ContinueOnError)
	fl.SetOutput(errs)
	gpus := fl.String("gpus", "", "UUIDs that must be there, and no others")
	library := fl.String("library", "", "CUDA library (default: the driver's)")
	work := fl.Duration("work", 2*time.Second, "how long each GPU computes")
	memory := fl.Int("memory", 64, "how much is copied to each GPU and back, in MiB")
	ring := fl.Bool("ring", true, "measure how fast the GPUs of a model send to each other at the same time")
	record := fl.Bool("calls", false, "add the return codes of all calls of CUDA")
	if err := fl.Parse(args); err != nil {
		return 2
	}
	if *memory < 1 || *memory > 1024 {
		fmt.Fprintln(errs, "gpucheck: --memory takes 1 to 1024 MiB")
		return 2
	}
	began := time.Now()
	enc := json.NewEncoder(out)
	c := &checker{work: *work, words: *memory << 18, ring: *ring,
		report: func(l gpucheck.Line) { _ = enc.Encode(l) }}
	if *gpus != "" {
		c.want = strings.Split(*gpus, ",")
	}
	var res gpucheck.Result
	path, before, err := find(*library, "/proc/self/mountinfo")
	if err == nil {
		err = open(path, before)
	}
	if err != nil {
		res.Failure = &gpucheck.Failure{Kind: gpucheck.KindMissing, GPUs: c.want, Step: "load of libcuda.so.1",
			Text: err.Error()}
	} else {
		res = c.run()
	}
	if *record {
		res.Calls = calls.list
	}
	res.Library, res.TookMS = path, time.Since(began).Milliseconds()
	if err := enc.Encode(gpucheck.Line{Result: &res}); err != nil {
		fmt.Fprintln(errs, "gpucheck:", err)
		return 1
	}
	return 0
}
