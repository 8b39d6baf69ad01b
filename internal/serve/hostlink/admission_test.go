package hostlink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// All clocks are those of synctest bubbles: they move when all goroutines wait.

// testPlaces is how many connections may wait.
const testPlaces = 1000

// peer is a connection from an address. Nothing is sent on it.
type peer struct {
	net.Conn
	address string
}

func from(address string) *peer { return &peer{address: address} }

func (p *peer) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(p.address), 1))
}

// opened returns an admission that has started.
func opened(busy func() bool) *admission {
	a := newAdmission(testPlaces, time.Now, busy)
	a.start()
	return a
}

// Connections that come before the replica can authorise them wait until it can.
func TestAdmissionBeforeTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, began := newAdmission(testPlaces, time.Now, func() bool { return false }), time.Now()
		time.AfterFunc(time.Second, a.start)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				err := a.wait(t.Context(), from("192.0.2.1"))
				if took := time.Since(began); err != nil || took < time.Second || took > time.Second+2*admissionTick {
					t.Errorf("one waited for %v: %v", took, err)
				}
			})
		}
		wg.Wait()
		time.Sleep(2 * admissionTick) // serve ends
	})
}

// A connection that comes alone does not wait, however busy the replica is.
func TestAdmissionOfOneIsImmediate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, began := opened(func() bool { return true }), time.Now()
		if err := a.wait(t.Context(), from("192.0.2.1")); err != nil || time.Since(began) > 0 {
			t.Errorf("it waited for %v: %v", time.Since(began), err)
		}
	})
}

// When many connect at once, at most enoughHandshakes are under way, besides one for each admissionPace. All others
// wait and are admitted as soon as those have asked for their authorisation, in the order in which they came.
func TestAdmissionOfManyIsPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const handshake, all = 100 * time.Millisecond, 1000
		a := opened(func() bool { return false })
		began := time.Now()
		var wg sync.WaitGroup
		var underWay, most atomic.Int64
		for range all {
			wg.Go(func() {
				if err := a.wait(t.Context(), from("192.0.2.1")); err != nil {
					t.Error(err)
				}
				n := underWay.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(handshake)
				underWay.Add(-1)
				a.arrived()
			})
		}
		wg.Wait()
		limit := int64(enoughHandshakes + handshake/admissionPace + 2)
		if n := most.Load(); n > limit || n < enoughHandshakes {
			t.Errorf("%d handshakes at once, want %d to %d", n, enoughHandshakes, limit)
		}
		if took, least := time.Since(began), all*handshake/(enoughHandshakes+2); took < least || took > 2*least {
			t.Errorf("%d took %v, want about %v", all, took, least)
		}
	})
}

// While the messages of those before them wait, connections are admitted at admissionPace alone. Those that waited for
// admissionWait are refused. When there is room again, the next ones go on at once.
func TestAdmissionUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var busy atomic.Bool
		busy.Store(true)
		a := opened(busy.Load)
		const all = 1500
		var wg sync.WaitGroup
		var admitted, refused atomic.Int64
		for range all {
			wg.Go(func() {
				switch err := a.wait(t.Context(), from("192.0.2.1")); {
				case err == nil:
					admitted.Add(1)
					a.arrived()
				case errors.Is(err, errBusy):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if want := int64(admissionWait / admissionPace); admitted.Load() < want*9/10 || admitted.Load() > want+2 {
			t.Errorf("%d were admitted under load, want about %d", admitted.Load(), want)
		}
		if admitted.Load()+refused.Load() != all {
			t.Errorf("%d admitted and %d refused of %d", admitted.Load(), refused.Load(), all)
		}
		time.Sleep(2 * admissionTick)
		synctest.Wait()
		a.mu.Lock()
		if a.waiting > 0 || a.serving {
			t.Errorf("%d still wait, served: %v", a.waiting, a.serving)
		}
		a.mu.Unlock()
		busy.Store(false)
		began := time.Now()
		for range enoughHandshakes {
			if err := a.wait(t.Context(), from("192.0.2.1")); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > admissionTick {
			t.Errorf("with room %d waited for %v", enoughHandshakes, took)
		}
	})
}

// A connection that ends while it waits, one that comes when too many wait, and those that were admitted and never
// ask for their authorisation take no place for long.
func TestAdmissionForgetsTheDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := opened(func() bool { return false })
		for range enoughHandshakes + 1 { // none of them asks for its authorisation; the first comes alone
			if err := a.wait(t.Context(), from("192.0.2.1")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(handshakeFor + time.Millisecond)
		began := time.Now()
		for range enoughHandshakes {
			if err := a.wait(t.Context(), from("192.0.2.1")); err != nil || time.Since(began) > 0 {
				t.Fatalf("after those that never came one waited for %v: %v", time.Since(began), err)
			}
		}
		left, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range testPlaces {
			wg.Go(func() {
				if err := a.wait(left, from("192.0.2.1")); err != nil && !errors.Is(err, errBusy) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if err := a.wait(t.Context(), from("192.0.2.1")); !errors.Is(err, errBusy) {
			t.Errorf("one more than %d may wait: %v", testPlaces, err)
		}
		leave()
		wg.Wait()
		a.mu.Lock()
		if a.waiting > 0 {
			t.Errorf("%d that are gone still wait", a.waiting)
		}
		a.mu.Unlock()
		for range enoughHandshakes {
			wg.Go(func() { _ = a.wait(t.Context(), from("192.0.2.1")) })
		}
		synctest.Wait()
		began = time.Now()
		a.close()
		wg.Wait()
		if took := time.Since(began); took > admissionTick {
			t.Errorf("a server that stops waits for its waiting connections: %v", took)
		}
		time.Sleep(handshakeFor + time.Millisecond) // there is room
		if err := a.wait(t.Context(), from("192.0.2.1")); !errors.Is(err, errBusy) {
			t.Errorf("a server that stops admits a connection: %v", err)
		}
		time.Sleep(2 * admissionTick) // serve ends
	})
}

// When no further connection may wait, the newest of the source with the most waiting connections makes room for one of
// another source. So no single address, and no IPv6 network, keeps others out.
func TestAdmissionOfManySources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(testPlaces, time.Now, func() bool { return false })
		var wg sync.WaitGroup
		var refused atomic.Int64
		come := func(address string) {
			wg.Go(func() {
				if a.wait(t.Context(), from(address)) != nil {
					refused.Add(1)
				}
			})
		}
		for i := range testPlaces {
			come(fmt.Sprintf("2001:db8::%x", i))
		}
		synctest.Wait()
		flood := sourceOf(from("2001:db8::1").RemoteAddr())
		oldest := slices.Clone(a.sources[flood][:testPlaces-100])
		if err := a.wait(t.Context(), from("2001:db8::f:1")); !errors.Is(err, errBusy) {
			t.Errorf("one more of the network that has all places may wait: %v", err)
		}
		for i := range 100 {
			come(fmt.Sprintf("192.0.2.%d", i+1))
		}
		synctest.Wait()
		a.mu.Lock()
		if !slices.Equal(a.sources[flood], oldest) || a.waiting != testPlaces || refused.Load() != 100 {
			t.Errorf("%d made room for 100 others, and %d wait, or they were not the newest", refused.Load(), a.waiting)
		}
		a.mu.Unlock()
		a.close()
		wg.Wait()
		time.Sleep(2 * admissionTick) // serve ends
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.waiting > 0 || len(a.sources) > 0 || len(a.turns) > 0 {
			t.Errorf("%d wait, of %d sources, %d turns, after the end", a.waiting, len(a.sources), len(a.turns))
		}
	})
}

// Sources take turns: a host is admitted soon although many connections of a flood came before it and make nothing of
// their turns.
func TestAdmissionTakesTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(testPlaces, time.Now, func() bool { return false })
		var wg sync.WaitGroup
		for range testPlaces {
			wg.Go(func() { _ = a.wait(t.Context(), from("198.51.100.1")) }) // never asks for its authorisation
		}
		synctest.Wait()
		a.start()
		began := time.Now()
		for i := range 10 {
			wg.Go(func() {
				err := a.wait(t.Context(), from(fmt.Sprintf("192.0.2.%d", i+1)))
				if took := time.Since(began); err != nil || took > time.Second {
					t.Errorf("a host waited for %v behind a flood: %v", took, err)
				}
			})
		}
		wg.Wait()
		time.Sleep(2 * admissionTick) // serve ends
	})
}

// A connection that its peer has closed is found when its turn comes, and takes no place among the handshakes. Those of
// its time that are still open are admitted, in a real TLS server.
func TestAdmissionSkipsTheClosed(t *testing.T) {
	t.Parallel()
	k, err := deriveKeys([]byte("the secret of a test of admissions"))
	if err != nil {
		t.Fatal(err)
	}
	conf, err := k.serverTLS([]string{"localhost"}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	a := newAdmission(testPlaces, time.Now, func() bool { return false })
	a.config(conf)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	results := make(chan error)
	const closed, open = 2 * enoughHandshakes, enoughHandshakes / 2
	go func() {
		for range closed + open {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				results <- tls.Server(c, conf).Handshake()
				c.Close()
			}()
		}
	}()
	waiting := func(n int) {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			a.mu.Lock()
			now := a.waiting
			a.mu.Unlock()
			if now == n {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d wait, want %d", now, n)
			}
		}
	}
	connect := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	hello := func(c net.Conn) error {
		return tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake() // only whether it happens matters
	}
	var gave []net.Conn
	for range closed {
		c := connect()
		gave = append(gave, c)
		go func() { _ = hello(c) }()
	}
	waiting(closed)
	shaken := make(chan error)
	for range open {
		c := connect()
		defer c.Close()
		go func() { shaken <- hello(c) }()
	}
	waiting(closed + open)
	for _, c := range gave {
		c.Close()
	}
	a.start() // none asks for its authorisation
	for range open {
		if err := <-shaken; err != nil {
			t.Error(err)
		}
	}
	failed := 0
	for range closed + open {
		if <-results != nil {
			failed++
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if failed != closed || len(a.admitted) != open {
		t.Errorf("%d were refused, want %d; %d were admitted, want %d", failed, closed, len(a.admitted), open)
	}
}
