package cluster

import (
	"runtime"
	"strings"

	"github.com/musterhq/muster/internal/fault"
)

// place is a path here or on a rank.
type place struct {
	cluster string // CLUSTER or CLUSTER.RANK; "" = here
	path    string
}

// parsePlace splits CLUSTER:PATH. On a cluster, the home is "." and what is below it a relative path, because that is
// where the node's server of files begins.
func parsePlace(arg string) (place, error) {
	name, rest, colon := strings.Cut(arg, ":")
	if !colon || strings.ContainsAny(name, `/\`) || name == "" || (runtime.GOOS == "windows" && len(name) == 1) {
		return place{path: arg}, nil
	}
	if home, ok := strings.CutPrefix(rest, "~"); ok {
		switch {
		case home == "":
			rest = ""
		case home[0] == '/':
			rest = strings.TrimLeft(home, "/")
		default:
			user, _, _ := strings.Cut(home, "/")
			return place{}, fault.New(fault.Invalid, "%s: write the path of %s's home, or ./~%s for a file of this name", arg,
				user, home)
		}
	}
	if rest == "" {
		rest = "."
	}
	return place{cluster: name, path: rest}, nil
}

func paths(of []place) []string {
	out := make([]string, len(of))
	for i, p := range of {
		out[i] = p.path
	}
	return out
}
