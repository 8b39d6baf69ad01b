package devstack

import (
	"errors"
	mathrand "math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken below the range that the kernel hands out to outgoing connections, so that they are still free at the
// next start.
const lowestPort, portsEnd = 10000, 32000

// freePorts finds n ports in a row that nothing listens on, by TCP or UDP. The port before them is their guard: it is
// held from here on, by the listener that is returned, so that no other platform takes the ports for free before
// whoever they are meant for has started, or while that one is down.
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

// local is where a port is on this machine.
func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
