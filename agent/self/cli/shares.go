package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/agent/storage/sharedfs"
	"github.com/musterhq/muster/internal/agentapi"
)

// sharesFlag is --shared: the shared file systems of the host, one for each use of the flag: a path may contain commas.
type sharesFlag struct{ all []*sharedfs.Share }

func (f *sharesFlag) Type() string { return "NAME=PATH" }

func (f *sharesFlag) String() string {
	if f == nil {
		return ""
	}
	var out []string
	for _, s := range f.all {
		out = append(out, s.Name+"="+s.Path)
	}
	return strings.Join(out, " ")
}

func (f *sharesFlag) Set(text string) error {
	d, err := sharedfs.Parse(text)
	if err != nil {
		return err
	}
	for _, s := range f.all {
		if s.Name == d.Name {
			return fmt.Errorf("%s is declared twice", d.Name)
		}
	}
	if len(f.all) == agentapi.MaxShared {
		return fmt.Errorf("at most %d", agentapi.MaxShared)
	}
	f.all = append(f.all, sharedfs.NewShare(d))
	return nil
}

// add adds the shared file systems to an inventory, and to its problems what is wrong with them.
func (f *sharesFlag) add(ctx context.Context, inv *agentapi.Inventory) {
	for _, s := range f.all {
		got := s.Inspect(ctx)
		inv.Shared = append(inv.Shared, got)
		if got.Problem != "" {
			inv.Problems = append(inv.Problems, agentapi.Problem{Code: "shared_unusable", Severity: "warn",
				Cause: "The shared file system " + s.Name + " cannot be used.", Evidence: got.Problem,
				Fix: "Mount it there, writable by root, and before the agent starts."})
		}
	}
}
