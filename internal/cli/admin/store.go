package admin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
)

func adminStore(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "store",
		Short: "Show what the checks of the store of volumes have found, and which snapshots it concerns",
		Args:  base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.Client(cmd).Admin.GetStoreCheck(cmd.Context())
			return s.Result(cmd, c, err, func(p *base.Printer) { printStore(p, c) })
		},
	}
}

func printStore(p *base.Printer, c client.StoreCheck) {
	foreign := fmt.Sprint(c.ForeignObjects)
	if c.ForeignExample != "" {
		foreign += ", such as " + c.ForeignExample
	}
	p.Facts("Listed", base.WhenPtr(c.ListedAt), "Does not list since", base.WhenPtr(c.ListFailingAt),
		"Everything was read since", base.WhenPtr(c.UnreadSince),
		"Unknown objects", fmt.Sprint(c.UnknownObjects), "Foreign objects", foreign)
	if len(c.Packs) == 0 {
		p.Line("Every pack that was looked for is as it was stored.")
		return
	}
	rows := make([][]string, len(c.Packs))
	for i, x := range c.Packs {
		var needed []string
		for _, n := range x.Needed {
			seqs := strings.Trim(strings.ReplaceAll(fmt.Sprint(n.Snapshots), " ", ","), "[]")
			needed = append(needed, fmt.Sprintf("%s (%s) %s", n.VolumeID, n.OrgID, seqs))
		}
		rows[i] = []string{x.State, base.When(x.Since), x.Key, fmt.Sprint(x.Bytes), strings.Join(needed, "; ")}
	}
	p.List("packs", []string{"STATE", "SINCE", "OBJECT", ">BYTES", "NEEDED BY VOLUME (ORG) SNAPSHOTS"}, rows)
}
