package cluster

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/kballard/go-shellquote"
	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
	"golang.org/x/term"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// onRank is a command about one rank, whose arguments after CLUSTER are its own.
func onRank(s *base.Session, cmd *cobra.Command, f func(cmd *cobra.Command, node *ssh.Client,
	args []string) error) *cobra.Command {
	var rank int
	cmd.Flags().IntVar(&rank, "node", 0, "the rank")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := s.Client(cmd)
		cl, err := base.FindCluster(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		return withRank(cmd.Context(), c, cl, rank, func(node *ssh.Client) error { return f(cmd, node, args[1:]) })
	}
	return cmd
}

func withRank(ctx context.Context, c *client.Client, cl id.Cluster, rank int, f func(*ssh.Client) error) error {
	node, err := c.Clusters.SSH(ctx, cl, rank)
	if err != nil {
		return err
	}
	defer node.Close()
	return f(node)
}

func clusterExec(s *base.Session) *cobra.Command {
	var tty, interactive, noInput bool
	cmd := onRank(s, &cobra.Command{
		Use:   "exec CLUSTER [--node RANK] [-t] [-n] -- COMMAND [ARGUMENT…]",
		Short: "Run a command on a rank",
		Long: `Run a command on a rank of a running cluster, in the image's working directory. Input and output are
yours, and the command's exit code becomes this one's. It needs no SSH key: your token is enough.

Without a command a shell is opened. The command gets your standard input; with -n it gets none, as ssh -n does, so that
a loop such as "while read x; do … done < list" keeps its list. -i and -it are accepted, as docker exec has them.`,
		Example: `  muster cluster exec train -- nvidia-smi
  muster cluster exec train --node 1 -- sh -c 'ls | wc -l'
  muster cluster exec train -t -- python`,
		Args: afterDash(1),
	}, func(cmd *cobra.Command, node *ssh.Client, args []string) error {
		if noInput {
			cmd.SetIn(strings.NewReader(""))
		}
		session, err := node.NewSession()
		if err != nil {
			return err
		}
		defer session.Close()
		return runSession(cmd, session, args, tty || len(args) == 0)
	})
	cmd.Flags().BoolVarP(&tty, "tty", "t", false, "run it at a terminal")
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", false, "give it your standard input, which it has anyway")
	cmd.Flags().BoolVarP(&noInput, "no-input", "n", false, "give it no standard input, as ssh -n does")
	cmd.MarkFlagsMutuallyExclusive("interactive", "no-input")
	return cmd
}

// afterDash wants n arguments before -- and takes any after it.
func afterDash(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if at := cmd.ArgsLenAtDash(); at == n || (at < 0 && len(args) == n) {
			return nil
		}
		return fault.New(fault.Invalid, "put -- between the cluster and what is to run; see %s --help", cmd.CommandPath())
	}
}

func runSession(cmd *cobra.Command, session *ssh.Session, args []string, tty bool) error {
	session.Stdout, session.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	// Not session.Stdin: its copying would keep the command from ending until the user types.
	in, err := session.StdinPipe()
	if err != nil {
		return err
	}
	if fd, ok := base.Terminal(cmd.InOrStdin()); ok && tty {
		restore, err := atTerminal(cmd.Context(), session, fd)
		if err != nil {
			return err
		}
		defer restore()
	}
	if len(args) == 0 {
		err = session.Shell()
	} else {
		err = session.Start(shellquote.Join(args...))
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the command cannot be started")
	}
	go func() {
		_, _ = io.Copy(in, cmd.InOrStdin())
		_ = in.Close()
	}()
	stop := context.AfterFunc(cmd.Context(), func() { session.Close() })
	defer stop()
	err = session.Wait()
	var exit *ssh.ExitError
	switch {
	case errors.As(err, &exit):
		return base.Exited(exit.ExitStatus())
	case err != nil:
		return fault.Wrap(err, fault.Unavailable, "the connection to the node was lost; the command was ended")
	}
	return nil
}

// atTerminal gives the session a terminal like ours, which passes every key on, and keeps their sizes alike.
func atTerminal(ctx context.Context, session *ssh.Session, fd int) (restore func(), err error) {
	cols, rows, err := term.GetSize(fd)
	if err != nil {
		return nil, err
	}
	if err := session.RequestPty(base.FirstOf(base.Variable(ctx, "TERM"), "xterm"), rows, cols,
		ssh.TerminalModes{}); err != nil {
		return nil, err
	}
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, err
	}
	resized := make(chan os.Signal, 1)
	notifyResize(resized)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-resized:
				if cols, rows, err := term.GetSize(fd); err == nil {
					_ = session.WindowChange(rows, cols)
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(resized)
		close(done)
		_ = term.Restore(fd, old)
	}, nil
}
