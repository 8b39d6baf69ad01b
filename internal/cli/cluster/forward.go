package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

// forwarding is one port here and the one it stands for.
type forwarding struct {
	local  string // host:port
	remote string // host:port as the rank sees it
}

func clusterForward(s *base.Session) *cobra.Command {
	var address string
	cmd := onRank(s, &cobra.Command{
		Use:   "port-forward CLUSTER [--node RANK] [LOCAL:]PORT…",
		Short: "Forward local ports to a rank",
		Long: `Reach ports of a rank of a running cluster from this machine, until Ctrl-C. LOCAL 0 takes any free
port. It needs no SSH key: your token is enough.`,
		Example: `  muster cluster port-forward train 8888
  muster cluster port-forward train --node 1 6006:6006 9000:8000`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fault.New(fault.Invalid, "%s takes CLUSTER and at least one port; see %s --help", cmd.CommandPath(),
					cmd.CommandPath())
			}
			_, err := forwardings("", args[1:])
			return err
		},
	}, func(cmd *cobra.Command, node *ssh.Client, args []string) error {
		f, err := forwardings(address, args)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return forward(ctx, node, f, cmd.ErrOrStderr())
	})
	cmd.Flags().StringVar(&address, "address", "127.0.0.1", "where to listen on this machine")
	return cmd
}

func forwardings(address string, args []string) ([]forwarding, error) {
	var out []forwarding
	for _, a := range args {
		local, remote, two := strings.Cut(a, ":")
		if !two {
			remote = local
		}
		l, err := strconv.ParseUint(local, 10, 16)
		r, err2 := strconv.ParseUint(remote, 10, 16)
		if err != nil || err2 != nil || r == 0 {
			return nil, fault.New(fault.Invalid, "%q is not a port or LOCAL:PORT", a)
		}
		out = append(out, forwarding{net.JoinHostPort(address, fmt.Sprint(l)), net.JoinHostPort("localhost", fmt.Sprint(r))})
	}
	return out, nil
}

// forward serves until ctx ends, which is no error, or the node is lost. When it returns nothing of it is open: ending
// closes the listeners and the connection to the node, and with that every stream in it, so that nothing waits for a
// peer that sends nothing.
func forward(ctx context.Context, node *ssh.Client, of []forwarding, say io.Writer) error {
	var listeners []net.Listener
	closeAll := func() {
		for _, l := range listeners {
			l.Close()
		}
	}
	for _, f := range of {
		l, err := net.Listen("tcp", f.local)
		if err != nil {
			closeAll()
			return fault.Wrap(err, fault.Conflict, "%s cannot be listened on: %s", f.local, reason(err))
		}
		listeners = append(listeners, l)
	}
	streams := &streams{open: map[net.Conn]struct{}{}}
	for i, f := range of {
		fmt.Fprintf(say, "%s → %s\n", listeners[i].Addr(), f.remote)
		streams.wg.Go(func() { streams.serve(listeners[i], node, f.remote, say) })
	}
	lost := make(chan error, 1)
	go func() { lost <- node.Wait() }()
	var err error
	select {
	case <-ctx.Done():
	case e := <-lost:
		err = fault.Wrap(e, fault.Unavailable, "the connection to the node was lost")
	}
	closeAll()
	streams.close()
	node.Close()
	streams.wg.Wait()
	return err
}

func reason(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err.Error()
	}
	return err.Error()
}

// streams are the local ends that are open.
type streams struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	over bool
	open map[net.Conn]struct{}
}

func (s *streams) serve(l net.Listener, node *ssh.Client, remote string, say io.Writer) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if !s.keep(c) {
			return
		}
		s.wg.Go(func() {
			defer s.drop(c)
			to, err := node.Dial("tcp", remote)
			if err != nil {
				fmt.Fprintf(say, "%s: %s\n", remote, refusal(err))
				return
			}
			defer to.Close()
			pump(c, to)
		})
	}
}

func refusal(err error) string {
	var open *ssh.OpenChannelError
	if errors.As(err, &open) {
		return open.Message
	}
	return err.Error()
}

func (s *streams) keep(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		c.Close()
		return false
	}
	s.open[c] = struct{}{}
	return true
}

func (s *streams) drop(c net.Conn) {
	c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for c := range s.open {
		c.Close()
	}
}

// pump copies both ways until both have ended, or one broke.
func pump(a, b net.Conn) {
	half := func(c net.Conn) {
		if w, ok := c.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		}
	}
	one := func(to, from net.Conn) {
		if _, err := io.Copy(to, from); err != nil {
			to.Close()
			from.Close()
		}
		half(to)
	}
	var wg sync.WaitGroup
	wg.Go(func() { one(a, b) })
	one(b, a)
	wg.Wait()
}
