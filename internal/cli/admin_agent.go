package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
)

func adminAgents(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "agents", Short: "Show the agent version of each channel, and the versions that hosts run", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.client(cmd).Agents(cmd.Context())
			return s.result(cmd, all, err, func(p *printer) {
				if len(all.Channels) == 0 {
					p.line("No version is set: muster admin agent-channel stable --version v1.4.0 --source https://… --percent 5")
				}
				var rows [][]string
				for _, x := range all.Channels {
					rows = append(rows, []string{x.Name, x.Version, fmt.Sprintf("%d %%", x.Percent), fmt.Sprint(x.Try),
						firstOf(x.Stopped, "goes on"), x.Source})
				}
				p.table([]string{"CHANNEL", "VERSION", ">HOSTS", ">TRY", "", "SOURCE"}, rows)
				p.line("")
				rows = nil
				for _, x := range all.Hosts {
					rows = append(rows, []string{x.Channel, firstOf(x.Version, "-"), orDash(x.State), orDash(x.Update),
						fmt.Sprint(x.Hosts)})
				}
				p.table([]string{"CHANNEL", "RUNS", "UPDATE", "TO", ">HOSTS"}, rows)
			})
		},
	}
}

func adminChannel(s *shell) *cobra.Command {
	var n client.ChannelChange
	cmd := &cobra.Command{
		Use:   "agent-channel CHANNEL",
		Short: "Set the agent version of a channel, and the share of its hosts that run it",
		Args:  exactly("CHANNEL"),
		Long: `Say which version of the agent a channel's hosts should run, and how many of them by a hundred.
Hosts without a choice of their operator's are on the channel stable. A version that too many hosts give up stops by
itself; set again, it goes on.`,
		Example: "  muster admin agent-channel stable --version v1.4.0 --source https://releases.example/v1.4.0 --percent 5",
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := s.client(cmd).SetAgentChannel(cmd.Context(), args[0], n)
			return s.result(cmd, x, err, func(p *printer) {
				p.line("%d %% of the hosts on %s should run %s. How they do: muster admin agents", x.Percent, x.Name, x.Version)
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
