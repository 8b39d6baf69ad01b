package testnet

import (
	"io"
	"net"
)

// serve connects every connection of a listener to one that dial opens.
func serve(l net.Listener, dial func() (net.Conn, error)) {
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go join(c, dial)
		}
	}()
}

func join(c net.Conn, dial func() (net.Conn, error)) {
	defer c.Close()
	d, err := dial()
	if err != nil {
		return
	}
	defer d.Close()
	go func() {
		_, _ = io.Copy(d, c)
		half(d)
	}()
	_, _ = io.Copy(c, d)
	half(c)
}

// half ends one direction of a TCP connection; the other continues.
func half(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.CloseWrite()
	}
}
