package firewall

import (
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/net/netns"
)

// A query to Docker's name server is refused in a guest's namespace, at whichever port it listens; others of the
// loopback pass.
func TestRefuseNames_RefusesDockersNameServerOnly(t *testing.T) {
	t.Parallel()
	err := netns.Empty(func() error {
		if err := up(); err != nil {
			return err
		}
		for range 2 {
			if err := RefuseNames(t.Context(), "/proc/thread-self/ns/net"); err != nil {
				return err
			}
		}
		for address, want := range map[string]error{"127.0.0.11:53": unix.EPERM, "127.0.0.11:40000": unix.EPERM,
			"127.0.0.1:53": nil} {
			if err := answered(address); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", address, err, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// up sets the loopback of the thread's namespace up.
func up() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// answered sends a packet to a server at an address, and receives the answer. It stays on its thread.
func answered(address string) error {
	at, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return err
	}
	var fds [2]int // the server's and the client's
	for i := range fds {
		if fds[i], err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		defer unix.Close(fds[i])
	}
	addr := &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())}
	if err := errors.Join(unix.Bind(fds[0], addr), unix.Connect(fds[1], addr),
		unix.SetsockoptTimeval(fds[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20})); err != nil {
		return err
	}
	if _, err := unix.Write(fds[1], []byte("name")); err != nil {
		return err
	}
	if _, err := unix.Write(fds[1], []byte("name")); err != nil { // a refusal is an error of the next call
		return err
	}
	_, err = unix.Read(fds[0], make([]byte, 16))
	if errors.Is(err, unix.EAGAIN) {
		return os.ErrDeadlineExceeded
	}
	return err
}
