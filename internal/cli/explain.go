package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

// explain prints on stderr what went wrong and what to do next. It never prints a fault's cause: that is for logs.
func explain(w io.Writer, err error) {
	if _, remote := err.(base.Exited); remote {
		return // the remote command printed its own errors
	}
	f := fault.From(err)
	if f == nil {
		fmt.Fprintln(w, "muster:", err)
		return
	}
	fmt.Fprintln(w, "muster:", f.Message)
	if len(f.Fields) > 1 {
		for _, x := range f.Fields {
			fmt.Fprintf(w, "  %s: %s\n", x.Location, x.Message)
		}
	}
	for _, e := range extra[client.Exclusion](f, "explain") {
		fmt.Fprintf(w, "  %-40s excluded %s, %d left\n", e.Constraint, base.Counted(e.Excluded, "host"), e.Left)
	}
	if names := extra[string](f, "unmeasured"); len(names) > 0 {
		fmt.Fprintf(w, "  not measured yet: the network of %s\n", strings.Join(names, ", "))
	}
	for _, r := range extra[client.Relaxation](f, "relaxations") {
		fmt.Fprintf(w, "  with %s: %s per hour\n", changeOf(r), base.Micro(r.Rate))
	}
	if f.RetryAfter > 0 {
		fmt.Fprintf(w, "  try again in %s\n", f.RetryAfter.Round(time.Second))
	}
	if h := hint(f); h != "" {
		fmt.Fprintln(w, " ", h)
	}
}

// extra returns a list that the server added to a fault, or nil.
func extra[T any](f *fault.Fault, name string) []T {
	raw, err := json.Marshal(f.Extra[name])
	if err != nil {
		return nil
	}
	var out []T
	if json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}

// flagOf maps fields of a spec to the flags that set them.
var flagOf = map[string]string{
	"nodes": "--nodes", "gpus_per_node": "--gpus", "gpu": "--gpu", "disk_gb": "--disk", "disk_limited": "--disk-limited",
	"scratch_gb": "--scratch-gb", "runtime": "--runtime", "trust": "--trust", "max_price_per_hour": "--max-price",
	"network.scope": "--scope", "network.min_gbps": "--min-gbps",
	"network.fabric": "--fabric", "network.min_busbw_gbps": "--min-busbw", "max_duration": "--max-duration",
}

// changeOf returns the flag that makes a request fit.
func changeOf(r client.Relaxation) string {
	flag := flagOf[r.Field]
	value, quote := fmt.Sprint(r.Value), ""
	if r.Field == "gpu" {
		quote = "'"
	}
	if flag == "" {
		return r.Field + " " + value
	}
	return flag + "=" + quote + value + quote
}

func hint(f *fault.Fault) string {
	switch f.Kind {
	case fault.InsufficientFunds:
		return "add credit: muster billing topup 25"
	case fault.NoCapacity:
		return "see what is free: muster offers"
	case fault.NotFound:
		for _, noun := range []string{"cluster", "host", "token", "key"} {
			if strings.Contains(strings.ToLower(f.Message), noun) {
				return "see what there is: muster " + strings.Replace(noun, "key", "ssh-key", 1) + " list"
			}
		}
	case fault.Internal:
		return "if this happens again, report to the platform's operator what you did and when"
	}
	return ""
}

// exitCode returns the exit code for an error; 0 for nil.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var code base.Exited
	if errors.As(err, &code) {
		return int(code)
	}
	if f := fault.From(err); f != nil {
		return f.Kind.ExitCode()
	}
	return 1
}
