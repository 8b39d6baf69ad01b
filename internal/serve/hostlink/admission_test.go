package hostlink

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// All clocks are those of synctest bubbles: they move when all goroutines wait.

// opened returns an admission that has started.
func opened(busy func() bool) *admission {
	a := newAdmission(time.Now, busy)
	a.start()
	return a
}

// Connections that come before the replica can authorise them wait until it can.
func TestAdmissionBeforeTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, began := newAdmission(time.Now, func() bool { return false }), time.Now()
		time.AfterFunc(time.Second, a.start)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				err := a.wait(t.Context())
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
		if err := a.wait(t.Context()); err != nil || time.Since(began) > 0 {
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
				if err := a.wait(t.Context()); err != nil {
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
		const all = 500
		var wg sync.WaitGroup
		var admitted, refused atomic.Int64
		for range all {
			wg.Go(func() {
				switch err := a.wait(t.Context()); {
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
		if len(a.waiting) > 0 || a.serving {
			synctest.Wait()
			time.Sleep(2 * admissionTick)
			if len(a.waiting) > 0 || a.serving {
				t.Errorf("%d still wait, served: %v", len(a.waiting), a.serving)
			}
		}
		busy.Store(false)
		began := time.Now()
		for range enoughHandshakes {
			if err := a.wait(t.Context()); err != nil {
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
			if err := a.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(handshakeFor + time.Millisecond)
		began := time.Now()
		for range enoughHandshakes {
			if err := a.wait(t.Context()); err != nil || time.Since(began) > 0 {
				t.Fatalf("after those that never came one waited for %v: %v", time.Since(began), err)
			}
		}
		gone, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range maxAdmissions {
			wg.Go(func() {
				if err := a.wait(gone); err != nil && !errors.Is(err, errBusy) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if err := a.wait(t.Context()); !errors.Is(err, errBusy) {
			t.Errorf("one more than %d may wait: %v", maxAdmissions, err)
		}
		leave()
		wg.Wait()
		if n := len(a.waiting); n > 0 {
			t.Errorf("%d that are gone still wait", n)
		}
		for range enoughHandshakes {
			wg.Go(func() { _ = a.wait(t.Context()) })
		}
		synctest.Wait()
		began = time.Now()
		a.close()
		wg.Wait()
		if took := time.Since(began); took > admissionTick {
			t.Errorf("a server that stops waits for its waiting connections: %v", took)
		}
		time.Sleep(2 * admissionTick) // serve ends
	})
}
