package devstack

import (
	"errors"
	mathrand "math/rand/v2"
	"net"
	"strconv"
	"time"
)

// Ports are chosen below the range that the kernel uses for outgoing connections, so that they are still free at the
// next start.
const lowestPort, portsEnd = 10000, 32000

// freePorts finds n consecutive ports that nothing listens on, by TCP or UDP. The port before them is their guard: the
// returned listener holds it from here on, so that no other platform considers the ports free before their users have
// started, or while one of them is down.
func freePorts(n int) (free []int, guard net.Listener, err error) {
	size := n + 1
	for range 1000 {
		first := lowestPort + size*mathrand.IntN((portsEnd-lowestPort)/size)
		guard, err := net.Listen("tcp", local(first))
		if err != nil {
			continue
		}
		free = free[:0]
		for port := first + 1; port < first+size && isFree(port); port++ {
			free = append(free, port)
		}
		if len(free) == n {
			return free, guard, nil
		}
		guard.Close()
	}
	return nil, nil, errors.New("too few free ports between 10000 and 31999 on 127.0.0.1")
}

// holdGuard listens on the guard port of a platform that starts again. Another platform that looks for free ports may
// have the port for a moment, so holdGuard tries for a second. It returns nil if another process keeps the port: the
// other ports still work then.
func holdGuard(port int) net.Listener {
	for range 20 {
		if l, err := net.Listen("tcp", local(port)); err == nil {
			return l
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", local(port))
	if err != nil {
		return false
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", local(port))
	if err != nil {
		return false
	}
	return u.Close() == nil
}

// local returns the address of a port on this machine.
func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
