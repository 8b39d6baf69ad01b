package archtest

import (
	"slices"
	"strings"
	"testing"
)

// wings are the folders of packages below agent/, lowest first: a wing may import those before it. The reconciler,
// which is package agent, may import all of them, and nothing imports it but the program, agent/self/cli.
var wings = []string{"leaf", "machine", "net", "storage", "workload", "self"}

// leaves are the packages below agent/ that several wings use. They import no other package of the agent.
var leaves = []string{"unixsock", "slots", "leasefiles"}

func TestWings(t *testing.T) {
	t.Parallel()
	imports := 0
	eachImport(t, func(file, from, to string) {
		fromWing, toWing := wing(from), wing(to)
		switch {
		case toWing == "":
			if from != "agent/self/cli" && to == "agent" {
				t.Errorf("%s imports the reconciler, which only agent/self/cli may", file)
			}
			return
		case fromWing == "", from == "agent/self/cli":
			return
		case fromWing == toWing && fromWing != "leaf":
			return
		}
		imports++
		lower, higher := slices.Index(wings, toWing), slices.Index(wings, fromWing)
		if lower < 0 || higher < 0 {
			t.Errorf("%s: %s or %s is in no wing", file, from, to)
		} else if lower >= higher {
			t.Errorf("%s of the wing %s imports %s of %s, which is not below it", file, fromWing, to, toWing)
		}
	})
	if imports < 10 {
		t.Fatalf("only %d imports between wings seen: the walk is broken", imports)
	}
}

// wing returns the wing of a package: "" outside of agent/, and for the reconciler itself.
func wing(pkg string) string {
	rest, below := strings.CutPrefix(pkg, "agent/")
	if !below {
		return ""
	}
	first, _, _ := strings.Cut(rest, "/")
	if slices.Contains(leaves, first) {
		return "leaf"
	}
	return first
}
