package testnet

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// Port reserves a port of 127.0.0.1 until the test ends: a program that gets its number can listen there by TCP, the
// kernel gives it to no other program, and while nothing listens a connection to it is refused at once. A port that was
// merely seen to be free could be used by an outgoing connection a moment later.
func Port(t testing.TB) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal("testnet: socket:", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	// The socket is bound but does not listen: a second socket with the same options can listen at the port, as Go's
	// listeners do.
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		t.Fatal("testnet: reserve a port:", err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal("testnet: name of a socket:", err)
	}
	return at.(*unix.SockaddrInet4).Port
}

// Address is Port with the host, "127.0.0.1:40001".
func Address(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", Port(t))
}
