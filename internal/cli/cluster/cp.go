package cluster

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"time"

	"github.com/pkg/sftp"
	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

func clusterCopy(s *base.Session) *cobra.Command {
	var node int
	cmd := &cobra.Command{
		Use:   "cp [--node RANK] SOURCE… TARGET",
		Short: "Copy files and folders to or from a rank",
		Long: `Copy files and folders, with all that is in them, to or from a rank of a running cluster. A place on
a cluster is CLUSTER:PATH or CLUSTER.RANK:PATH. A path that does not begin with /, or begins with ~/, is below the
user's home. A source on a cluster can be a pattern with *, ?, […] and [!…]: put it in quotes. If it ends with /, it
matches folders only. A target that is a folder takes the sources in; several sources need one. It needs no SSH key:
your token is enough. -r is accepted, as scp has it, and changes nothing.

CLUSTER.RANK is read as a whole first: llama-3.1:/x is on the cluster llama-3.1, if there is one. With --node, what
stands before the colon is the name alone.

Links are followed. What cannot be copied, such as a dead link, a FIFO or a file that you may not read, is named on
standard error, the rest is copied, and the exit code is 1. A file that is there already is replaced once its new
content has arrived whole; until then, it is in a file .muster-cp-… in the same folder.`,
		Example: `  muster cluster cp data train:/work
  muster cluster cp train.1:checkpoints/last.pt .
  muster cluster cp 'train:/out/*.pt' models`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			f := copying{session: s, node: -1}
			if cmd.Flags().Changed("node") {
				f.node = node
			}
			to, err := parsePlace(args[len(args)-1])
			if err != nil {
				return err
			}
			var from []place
			for _, a := range args[:len(args)-1] {
				p, err := parsePlace(a)
				if err != nil {
					return err
				}
				from = append(from, p)
			}
			return f.run(cmd, from, to)
		},
	}
	cmd.Flags().IntVar(&node, "node", 0, "the rank; CLUSTER is then a name or an id alone")
	cmd.Flags().BoolP("recursive", "r", false, "accepted, as scp has it: folders are always copied whole")
	return cmd
}

// copying is one call of the command.
type copying struct {
	session *base.Session
	node    int // -1: the rank is part of the place
}

// end is one rank of a cluster.
type end struct {
	cluster id.Cluster
	rank    int
}

func (f copying) run(cmd *cobra.Command, from []place, to place) error {
	c := f.session.Client(cmd)
	at, err := f.rank(cmd.Context(), c, from, to)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return withRank(ctx, c, at.cluster, at.rank, func(node *ssh.Client) error {
		defer closeAfter(ctx, node)()
		files, err := sftp.NewClient(node, sftp.UseConcurrentWrites(true))
		if err != nil {
			return fault.Wrap(err, fault.Unavailable, "the node serves no files: %s", err)
		}
		defer files.Close()
		var bad fault.Fields
		t := transfer{ctx: ctx, from: here{}, to: there{files}, report: func(err error) {
			if f.session.ForPrograms() {
				bad.Add("", "%s", errorText(err))
			} else {
				cmd.PrintErrln("muster: not copied:", errorText(err))
			}
		}}
		if to.cluster == "" {
			t.from, t.to = t.to, t.from
		}
		err = inOneLine(t.all(paths(from), to.path))
		if f := fault.From(err); f != nil && len(bad) > 0 {
			f.Fields = bad
		}
		return err
	})
}

// rank returns the rank that all places on a cluster are on.
func (f copying) rank(ctx context.Context, c *client.Client, from []place, to place) (end, error) {
	found := map[string]end{}
	find := func(name string) (end, error) {
		if at, ok := found[name]; ok {
			return at, nil
		}
		var at end
		var err error
		if f.node >= 0 {
			at.rank = f.node
			at.cluster, err = base.FindCluster(ctx, c, name)
		} else {
			at.cluster, at.rank, err = base.FindRank(ctx, c, name)
		}
		found[name] = at
		return at, err
	}
	for _, p := range from {
		if (p.cluster == "") == (to.cluster == "") {
			return end{}, fault.New(fault.Invalid, "one of source and target has to be on a cluster, as CLUSTER:PATH, and "+
				"the other one on this machine")
		}
	}
	if to.cluster != "" {
		return find(to.cluster)
	}
	at, err := find(from[0].cluster)
	for _, p := range from[1:] {
		if err != nil {
			break
		}
		var other end
		if other, err = find(p.cluster); err == nil && other != at {
			err = fault.New(fault.Invalid, "all sources have to be on one rank")
		}
	}
	return at, err
}

// cleanupTime is how long a copy that was interrupted may take to remove what it has not finished.
const cleanupTime = 3 * time.Second

// closeAfter closes the connection cleanupTime after ctx ended, which ends requests that nothing answers. It returns
// what stops that.
func closeAfter(ctx context.Context, node *ssh.Client) (stop func()) {
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		select {
		case <-done:
		case <-time.After(cleanupTime):
			node.Close()
		}
	})
	return func() { cancel(); close(done) }
}

// errorText returns what a person reads of an error. The names in it may come from a node.
func errorText(err error) string {
	if f := fault.From(err); f != nil {
		return text.OneLine(f.Message)
	}
	return text.OneLine(err.Error())
}

// inOneLine returns an error whose message is its errorText.
func inOneLine(err error) error {
	if err == nil {
		return nil
	}
	if f := fault.From(err); f != nil {
		f.Message = errorText(err)
		return err
	}
	return errors.New(errorText(err))
}
