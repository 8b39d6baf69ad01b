package testnet

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// A reserved port refuses connections until something listens, can be listened on repeatedly, and is given to no other
// test.
func TestAPortIsTheTests(t *testing.T) {
	t.Parallel()
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
