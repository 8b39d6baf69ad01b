package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
)

func adminAgents(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "agents", Short: "Show the agent version of each channel, and the versions that hosts run", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Admin.ListAgents(cmd.Context())
			return s.Result(cmd, all, err, func(p *base.Printer) {
				if len(all.Channels) == 0 {
					p.Line("No version is set: muster admin agent-channel stable --version v1.4.0 --source https://… --percent 5")
				}
				var rows [][]string
				for _, x := range all.Channels {
					rows = append(rows, []string{x.Name, x.Version, fmt.Sprintf("%d %%", x.Percent), fmt.Sprint(x.Try),
						base.FirstOf(x.Stopped, "goes on"), x.Source})
				}
				p.Table([]string{"CHANNEL", "VERSION", ">HOSTS", ">TRY", "", "SOURCE"}, rows)
				p.Line("")
				rows = nil
				for _, x := range all.Hosts {
					rows = append(rows, []string{x.Channel, base.FirstOf(x.Version, "-"), base.OrDash(x.State), base.OrDash(x.Update),
						fmt.Sprint(x.Hosts)})
				}
				p.Table([]string{"CHANNEL", "RUNS", "UPDATE", "TO", ">HOSTS"}, rows)
			})
		},
	}
}

func adminChannel(s *base.Session) *cobra.Command {
	var n client.SetAgentChannelRequest
	cmd := &cobra.Command{
		Use:   "agent-channel CHANNEL",
		Short: "Set the agent version of a channel, and the share of its hosts that run it",
		Args:  base.Exactly("CHANNEL"),
		Long: `Say which version of the agent a channel's hosts should run, and how many of them by a hundred.
Hosts without a choice of their operator's are on the channel stable. A version that too many hosts give up stops by
itself; set again, it goes on.`,
		Example: "  muster admin agent-channel stable --version v1.4.0 --source https://releases.example/v1.4.0 --percent 5",
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := s.Client(cmd).Admin.SetAgentChannel(cmd.Context(), args[0], n)
			return s.Result(cmd, x, err, func(p *base.Printer) {
				p.Line("%d %% of the hosts on %s should run %s. How they do: muster admin agents", x.Percent, x.Name, x.Version)
			})
		},
	}
	cmd.Flags().StringVar(&n.Version, "version", "", "a release's number")
	cmd.Flags().StringVar(&n.Source, "source", "", "https address of the folder with SHA256SUMS, SHA256SUMS.sig and "+
		"the archives")
	cmd.Flags().IntVar(&n.Percent, "percent", 0, "of the channel's hosts")
	cmd.Flags().BoolVar(&n.Again, "again", false, "hosts that gave this version up try it again")
	return cmd
}
