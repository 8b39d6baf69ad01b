package relay

import (
	"net"

	"golang.org/x/sys/unix"
)

// tune enlarges the socket's buffers for bursts, and makes the kernel drop datagrams that are too big for a path
// instead of fragmenting them: hosts find the greatest size themselves. Both settings may be refused without harm.
func tune(conn *net.UDPConn) {
	_ = conn.SetReadBuffer(8 << 20)
	_ = conn.SetWriteBuffer(8 << 20)
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
	})
}
