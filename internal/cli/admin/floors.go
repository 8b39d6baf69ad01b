package admin

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

func adminFloors(s *base.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "floors",
		Short: "Show the oldest versions of hosts' programs that may run renters' work",
		Args:  base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Admin.ListVersionFloors(cmd.Context())
			return s.Result(cmd, all, err, func(p *base.Printer) { printFloors(p, all) })
		},
	}
	cmd.AddCommand(setFloor(s), removeFloor(s))
	return cmd
}

func printFloors(p *base.Printer, all client.VersionFloors) {
	rows := make([][]string, len(all.Items))
	for i, f := range all.Items {
		older := "a warning"
		if f.BlocksFrom != nil {
			older = "not rented from " + base.When(*f.BlocksFrom)
		}
		rows[i] = []string{f.Component, base.OrDash(f.Branch), f.Least, older, f.NoticedOn, f.Reason}
	}
	p.Table([]string{"PROGRAM", "BRANCH", "OLDEST", "OLDER IS", "KNOWN SINCE", "REASON"}, rows)
}

func setFloor(s *base.Session) *cobra.Command {
	var n client.SetVersionFloorRequest
	var blocks string
	cmd := &cobra.Command{
		Use:   "set PROGRAM VERSION",
		Short: "Set the oldest version of a program: docker, driver, runc or toolkit",
		Long: `Set the oldest version of a program of hosts (docker, driver, runc or toolkit). An older version is a warning
on its host's page, and from the day of --blocks-from on it keeps the host from being rented. Hosts are judged when
they send their inventory again, at most an hour later. What runs goes on.`,
		Example: "  muster admin floors set runc 1.3.3 --branch 1.3. --reason 'a container can write to the host " +
			"(CVE-2025-31133)' --blocks-from 2026-01-15",
		Args: base.Exactly("PROGRAM", "VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n.Least = args[1]
			if blocks != "" {
				from, err := time.Parse(time.DateOnly, blocks)
				if err != nil {
					return fault.New(fault.Invalid, "--blocks-from: want a day, such as 2026-01-15")
				}
				n.BlocksFrom = &from
			}
			all, err := s.Client(cmd).Admin.SetVersionFloor(cmd.Context(), args[0], n)
			return s.Result(cmd, all, err, func(p *base.Printer) { printFloors(p, all) })
		},
	}
	today := time.Now().UTC().Format(time.DateOnly)
	cmd.Flags().StringVar(&n.Branch, "branch", "", "the versions that it is of begin with this, such as 1.3.")
	cmd.Flags().StringVar(&n.Reason, "reason", "", "why; operators read it")
	cmd.Flags().StringVar(&n.NoticedOn, "noticed", today, "the day on which the reason became known (default: today)")
	cmd.Flags().Lookup("noticed").DefValue = ""
	cmd.Flags().StringVar(&blocks, "blocks-from", "", "the day from which on an older version keeps hosts from being "+
		"rented")
	return cmd
}

func removeFloor(s *base.Session) *cobra.Command {
	var branch string
	cmd := &cobra.Command{
		Use: "remove PROGRAM", Short: "Remove the floor of a program's branch", Args: base.Exactly("PROGRAM"),
		Example: "  muster admin floors remove runc --branch 1.3.",
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := s.Client(cmd).Admin.RemoveVersionFloor(cmd.Context(), args[0],
				client.RemoveVersionFloorRequest{Branch: branch})
			return s.Result(cmd, all, err, func(p *base.Printer) { printFloors(p, all) })
		},
	}
	cmd.Flags().StringVar(&branch, "branch", "", "the branch that it is of")
	return cmd
}
