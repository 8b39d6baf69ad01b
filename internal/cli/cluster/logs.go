package cluster

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/id"
)

func clusterLogs(s *base.Session) *cobra.Command {
	var follow, times bool
	var node, tail int
	var grep string
	cmd := onCluster(s, "logs", "What the ranks print", func(cmd *cobra.Command, c *client.Client, cl id.Cluster) error {
		of := client.LogsOf{Follow: follow, Timestamps: times, Grep: grep}
		if node >= 0 {
			of.Node = &node
		}
		if tail >= 0 {
			of.Tail = &tail
		}
		stream, err := c.Clusters.Logs(cmd.Context(), cl, of)
		if err != nil {
			return err
		}
		defer stream.Close()
		if stream.Waiting != "" {
			cmd.PrintErrf("Nothing can be printed yet: %s.\n", stream.Waiting)
		}
		if stream.Cut != nil {
			cmd.PrintErrln(cutNote(*stream.Cut))
		}
		_, err = io.Copy(cmd.OutOrStdout(), stream)
		if cmd.Context().Err() != nil {
			return nil // Ctrl-C ends following, and is no failure
		}
		return err
	})
	cmd.Long = `What the ranks print. With more than one rank each line begins with its rank. Of a run that has ended, the last
1 MB stays readable for 90 days; what is missing before it is said on standard error.

A progress bar that prints carriage returns and no line ends appears after every 16 kB of it, as in docker logs, and
when it ends its line.`
	cmd.Example = `  muster cluster logs train --follow
  muster cluster logs train --grep "loss=" --tail 20`
	cmd.Flags().StringVar(&grep, "grep", "", "only lines that contain this text, in upper or lower case")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "stay until the cluster has ended")
	cmd.Flags().BoolVarP(&times, "timestamps", "t", false, "begin each line with its time")
	cmd.Flags().IntVar(&node, "node", -1, "only this rank (default: all)")
	cmd.Flags().IntVarP(&tail, "tail", "n", -1, "lines from the end, of each rank (default: all)")
	return cmd
}

// cutNote says what is missing at the beginning of a log.
func cutNote(c client.LogCut) string {
	if c.Lines == 0 {
		return "Lines are missing at the beginning: there are more than fit one answer."
	}
	return fmt.Sprintf("%s (%s) are missing at the beginning: more than is kept of a run that has ended, or fits one "+
		"answer.", base.Counted(int(c.Lines), "line"), base.Bytes(c.Bytes))
}
