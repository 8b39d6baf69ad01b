package base

import (
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Terminal returns the file descriptor behind a stream if the stream is a terminal.
func Terminal(stream any) (fd int, ok bool) {
	f, ok := stream.(*os.File)
	if !ok {
		return 0, false
	}
	fd = int(f.Fd())
	return fd, term.IsTerminal(fd)
}

// Secret asks for a secret: without echo on a terminal, else it reads the first line of standard input.
func Secret(cmd *cobra.Command, prompt string) (string, error) {
	s, err := HiddenLine(cmd, prompt)
	return strings.TrimSpace(s), err
}

// HiddenLine is Secret without trimming: a password may begin or end with spaces.
func HiddenLine(cmd *cobra.Command, prompt string) (string, error) {
	if fd, ok := Terminal(cmd.InOrStdin()); ok {
		if _, err := io.WriteString(cmd.ErrOrStderr(), prompt+": "); err != nil {
			return "", err
		}
		b, err := term.ReadPassword(fd)
		_, _ = io.WriteString(cmd.ErrOrStderr(), "\n")
		return string(b), err
	}
	s, err := readLine(cmd.InOrStdin())
	return strings.TrimSuffix(s, "\r"), err
}

// readLine reads up to the newline and no further, so that the next reader gets the rest.
func readLine(r io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); len(line) < 64<<10; {
		n, err := r.Read(b)
		if n == 1 && b[0] == '\n' {
			break
		}
		line = append(line, b[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", err
		}
	}
	return string(line), nil
}
