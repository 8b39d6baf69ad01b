package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

// explain tells on stderr what went wrong and what to do next. It never prints a fault's cause: that is for logs.
func explain(w io.Writer, err error) {
	if _, remote := err.(base.Exited); remote {
		return // it has said itself what went wrong
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
	for _, e := range exclusions(f) {
		fmt.Fprintf(w, "  %-40s excluded %s, %d left\n", e.Constraint, base.Counted(e.Excluded, "host"), e.Left)
	}
	if f.RetryAfter > 0 {
		fmt.Fprintf(w, "  try again in %s\n", f.RetryAfter.Round(time.Second))
	}
	if h := hint(f); h != "" {
		fmt.Fprintln(w, " ", h)
	}
}

type exclusion struct {
	Constraint string `json:"constraint"`
	Excluded   int    `json:"excluded_hosts"`
	Left       int    `json:"left_hosts"`
}

// exclusions are why nothing fits, as the server explained it.
func exclusions(f *fault.Fault) []exclusion {
	raw, err := json.Marshal(f.Extra["explain"])
	if err != nil {
		return nil
	}
	var out []exclusion
	if json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}

func hint(f *fault.Fault) string {
	switch f.Kind {
	case fault.InsufficientFunds:
		return "add credit: muster billing topup 25"
	case fault.NoCapacity:
		return "see what is free: muster offers; or ask for fewer GPUs, another model, or network scope any"
	case fault.NotFound:
		for _, noun := range []string{"cluster", "host", "token", "key"} {
			if strings.Contains(strings.ToLower(f.Message), noun) {
				return "see what there is: muster " + strings.Replace(noun, "key", "ssh-key", 1) + " list"
			}
		}
	case fault.Internal:
		return "if it stays, tell your platform's operator what you did and when"
	}
	return ""
}

// exitCode is the command line's answer to programs.
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
