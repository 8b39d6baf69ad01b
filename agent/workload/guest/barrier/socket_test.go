package barrier

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/agent/workload/guest"
)

// The guest's init socket accepts one connection at a time and lines of at most 64 kB. It is closed before the command
// starts.
func TestWhoInAWorkloadIsHeard(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	path := filepath.Join(n.files.Node, guest.InitSocket)
	dial := func() net.Conn {
		t.Helper()
		c, err := unixsock.Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(time.Minute))
		return c
	}
	say := func(c net.Conn, s guest.State) {
		t.Helper()
		if err := json.NewEncoder(c).Encode(guest.Workload{LeaseRef: n.ref, State: s}); err != nil {
			t.Fatal(err)
		}
	}
	cutOff := func(c net.Conn) bool {
		_, err := c.Read(make([]byte, 1))
		nerr, timeout := err.(net.Error)
		return err != nil && !(timeout && nerr.Timeout())
	}

	endless := dial()
	go func() {
		for line := bytes.Repeat([]byte("x"), 1<<20); ; {
			if _, err := endless.Write(line); err != nil {
				return
			}
		}
	}()
	if !cutOff(endless) {
		t.Fatal("a line without an end is read on")
	}
	var init net.Conn
	for noted := false; !noted; { // the guest may not have let go of the first yet
		init = dial()
		if err := json.NewEncoder(init).Encode(guest.Workload{LeaseRef: n.ref, State: guest.StateAtBarrier}); err == nil {
			_, err = bufio.NewReader(init).ReadByte()
			noted = err == nil
		}
	}
	if second := dial(); !cutOff(second) {
		t.Error("a second connection is accepted while the init is connected")
	}
	say(init, guest.StateReleasing)
	if _, err := init.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if c, err := unixsock.Dial(t.Context(), path); err == nil {
		c.Close()
		t.Error("the command can connect to the init's socket")
	}
	if w, err := n.client.Next(t.Context(), noState); err != nil || w.State != guest.StateAtBarrier {
		t.Errorf("before the init's connection ends: %+v, %v", w, err)
	}
	released := hostinfo.BootMS()
	for hostinfo.BootMS() == released { // exec takes a moment
	}
	init.Close()
	if w := n.next(t, guest.StateAtBarrier); w.State != guest.StateStarted || w.BootMS > released {
		t.Errorf("%+v, released at %d: a slow exec counts as the host's late start", w, released)
	}
}
