package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
)

// connectSocket implements `socket PATH`: it joins standard input and output with a Unix socket, as the container's user.
func connectSocket(path string) int {
	if err := joinSocket(path, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return guest.ExitBroken
	}
	return 0
}

// joinSocket writes agentapi.SocketConnected once it is connected, and returns when the socket's other end has closed.
func joinSocket(path string, in io.Reader, out io.Writer) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("nothing listens on the socket %s of the node", path)
	case err != nil:
		return fmt.Errorf("the socket %s of the node cannot be reached: %w", path, errors.Unwrap(err))
	}
	defer conn.Close()
	if _, err := io.WriteString(out, agentapi.SocketConnected); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(conn, in)
		_ = conn.CloseWrite()
	}()
	_, err = io.Copy(out, conn)
	return err
}
