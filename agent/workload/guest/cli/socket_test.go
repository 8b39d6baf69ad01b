package cli

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

func TestSocket_JoinsBothWaysUntilItsEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.sock")
	if err := joinSocket(path, strings.NewReader(""), io.Discard); err == nil ||
		!strings.Contains(err.Error(), "nothing listens on the socket "+path) {
		t.Errorf("no socket: %v", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b, _ := io.ReadAll(c) // ends, because the input does
		_, _ = c.Write(bytes.ToUpper(b))
	}()
	var out bytes.Buffer
	if err := joinSocket(path, strings.NewReader("quiet words"), &out); err != nil || out.String() !=
		"connected\nQUIET WORDS" {
		t.Errorf("%q %v", out.String(), err)
	}
	if err := joinSocket("/"+strings.Repeat("x", 200), strings.NewReader(""), io.Discard); err == nil ||
		!strings.Contains(err.Error(), "cannot be reached: ") {
		t.Errorf("a path that is too long: %v", err)
	}
}
