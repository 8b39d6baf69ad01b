package testnet

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// A port that was given out refuses until somebody listens, can be listened on, again and again, and is nobody else's.
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
