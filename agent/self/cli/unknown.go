package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/musterhq/muster/agent/self/update"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// unknownFlags returns the options among args that the flags do not have, as they were written. It parses args as pflag
// does if unknown flags are allowed: the word after an unknown one is its value unless it begins with a dash.
func unknownFlags(flags *pflag.FlagSet, args []string) (unknown []string) {
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		if !isFlag || name == "" {
			continue
		}
		name, _, whole := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		f := flags.Lookup(name)
		if f == nil && name == "h" {
			f = flags.Lookup("help")
		}
		if f == nil {
			unknown = append(unknown, args[i])
		}
		next := i+1 < len(args) && (f != nil && f.NoOptDefVal == "" || f == nil && !strings.HasPrefix(args[i+1], "-"))
		if !whole && next {
			i++
		}
	}
	return unknown
}

// tolerate allows options that this version does not know if a newer version has run on this host: the options are for
// the newer version, in the service's drop-in, and a host that went back from it must keep running. In all other cases
// an unknown option is an error: it is probably mistyped, and a limit that the operator believes to be set would not
// be.
func (f *runFlags) tolerate(flags *pflag.FlagSet, args []string) error {
	unknown := unknownFlags(flags, args)
	if len(unknown) == 0 {
		return nil
	}
	newest := update.WentBack(f.state, build.Version)
	if newest == "" {
		return fault.New(fault.Invalid, "unknown option: %s", strings.Join(unknown, ", "))
	}
	f.ignored = &agentapi.Problem{
		Code:     "options_ignored",
		Severity: "warn",
		Cause: fmt.Sprintf("This version of the agent does not know these options and goes on without them: %s.",
			strings.Join(unknown, ", ")),
		Evidence: fmt.Sprintf("%s runs, after %s", build.Version, newest),
		Fix:      "Install the newer version again, or remove the options from the service (systemctl edit muster-agent).",
	}
	fmt.Fprintln(os.Stderr, "muster-agent: warning:", f.ignored.Cause, f.ignored.Evidence)
	return nil
}
