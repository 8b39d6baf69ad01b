//go:build !linux

package relay

import "net"

// tune enlarges the socket's buffers for bursts. A relay in service runs on Linux; elsewhere this package only has to
// compile, as a part of the muster command.
func tune(conn *net.UDPConn) {
	_ = conn.SetReadBuffer(8 << 20)
	_ = conn.SetWriteBuffer(8 << 20)
}
