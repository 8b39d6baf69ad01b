package cli

import (
	"fmt"
	"os"
	"strconv"

	"github.com/pkg/sftp"

	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/agent/workload/guest/login"
)

// become implements `exec home|workdir COLS ROWS [-- COMMAND]`.
func become(args []string) int {
	if len(args) != 3 && (len(args) != 5 || args[3] != "--") {
		return usage()
	}
	r := login.Request{Home: args[0] == "home"}
	r.Cols, _ = strconv.Atoi(args[1])
	r.Rows, _ = strconv.Atoi(args[2])
	if len(args) == 5 {
		r.Command = &args[4]
	}
	return login.Run(r)
}

// serveFiles is an sftp server on standard input and output, as the container's user.
func serveFiles() int {
	home := os.Getenv("HOME")
	if home == "" || os.Chdir(home) != nil {
		home = "/"
	}
	s, err := sftp.NewServer(stdio{}, sftp.WithServerWorkingDirectory(home))
	if err == nil {
		err = s.Serve()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "muster: sftp:", err)
		return guest.ExitBroken
	}
	return 0
}

type stdio struct{}

func (stdio) Read(b []byte) (int, error)  { return os.Stdin.Read(b) }
func (stdio) Write(b []byte) (int, error) { return os.Stdout.Write(b) }
func (stdio) Close() error                { return os.Stdin.Close() }
