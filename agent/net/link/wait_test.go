package link

import (
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// behind returns the address of a line to a server. It accepts connections at once, and passes nothing on before wait
// has passed. accepted counts them.
func behind(t *testing.T, server string, wait time.Duration) (address string, accepted *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	accepted = &atomic.Int32{}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			go func() {
				defer near.Close()
				time.Sleep(wait)
				far, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				defer far.Close()
				go func() {
					defer near.Close()
					_, _ = io.Copy(near, far)
				}()
				_, _ = io.Copy(far, near)
			}()
		}
	}()
	return l.Addr().String(), accepted
}

// A server to which all hosts connect at once lets a connection wait for longer than the NATS client does by default.
// A host that gave up and connected again would lose its place.
func TestAHostWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	p, dir := newPlatform(t), t.TempDir()
	if _, err := p.enroll(dir); err != nil {
		t.Fatal(err)
	}
	s := natsServer(t, p, p.reply.Host, -1)
	address, accepted := behind(t, s.Addr().String(), nats.DefaultTimeout+500*time.Millisecond)
	i, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	i.NATS, i.NATSCA = []string{"tls://" + address}, string(p.ca())
	up := make(chan struct{}, 1)
	c := New(i, slog.New(slog.DiscardHandler))
	if err := c.Start(Handlers{Up: func() { up <- struct{}{} }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	wait(t, up)
	if n := accepted.Load(); n != 1 {
		t.Errorf("the host connected %d times", n)
	}
}
