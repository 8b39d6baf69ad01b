package testnet

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// A reserved port refuses connections until something listens, can be listened on repeatedly, and is given to no other
// test. It does not run in parallel: a process that another test starts has a copy of the listener between fork and
// exec, so the port would accept connections after the listener was closed here.
func TestAPortIsTheTests(t *testing.T) {
	addr := Address(t)
	if Address(t) == addr {
		t.Fatal("given out twice")
	}
	for range 2 {
		if c, err := net.Dial("tcp", addr); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal(c, err)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.Close()
	}
}
