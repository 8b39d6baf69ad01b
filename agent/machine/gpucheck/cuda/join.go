package cuda

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/musterhq/muster/agent/machine/gpucheck"
)

// hello is what a node sends to rank 0, and welcome the answer once all have come.
type hello struct {
	Rank    int `json:"rank"`
	Version int `json:"version"` // of NCCL: its ranks must have the same
}

type welcome struct {
	ID    []byte `json:"id,omitempty"`
	Error string `json:"error,omitempty"` // why nothing is measured
}

// errPeers means that not all nodes came, which says nothing about any network.
var errPeers = errors.New("not all nodes came to measure")

// meeting is the nodes' connections over the overlay, which authenticates addresses.
type meeting struct{ conns []net.Conn } // rank 0's to all others; the others' to rank 0

func (m *meeting) close() {
	for _, c := range m.conns {
		c.Close()
	}
}

// join passes rank 0's id to all nodes. Either all get it, or none does: a node that began alone would wait in NCCL.
func join(q gpucheck.ReduceRequest, version int, create func() (uniqueID, error)) (m *meeting, id uniqueID, err error) {
	deadline := time.Now().Add(time.Duration(q.JoinMS) * time.Millisecond)
	if q.Rank == 0 {
		return lead(q, version, deadline, create)
	}
	return follow(q, version, deadline)
}

func lead(q gpucheck.ReduceRequest, version int, deadline time.Time,
	create func() (uniqueID, error)) (m *meeting, id uniqueID, err error) {
	l, err := net.Listen("tcp", net.JoinHostPort(q.Addresses[0], strconv.Itoa(q.Port)))
	if err != nil {
		return nil, id, fmt.Errorf("wait for the other nodes: %w", err)
	}
	defer l.Close()
	_ = l.(*net.TCPListener).SetDeadline(deadline)
	byRank := make([]net.Conn, len(q.Addresses))
	defer func() {
		if m == nil {
			(&meeting{conns: present(byRank)}).close()
		}
	}()
	refused := ""
	for len(present(byRank)) < len(q.Addresses)-1 {
		c, err := l.Accept()
		if err != nil {
			return nil, id, fmt.Errorf("%w: %d of %d within %v", errPeers, 1+len(present(byRank)), len(q.Addresses),
				time.Duration(q.JoinMS)*time.Millisecond)
		}
		var h hello
		_ = c.SetDeadline(deadline)
		if json.NewDecoder(c).Decode(&h) != nil || h.Rank < 1 || h.Rank >= len(q.Addresses) ||
			!from(c, q.Addresses[h.Rank]) {
			c.Close()
			continue
		}
		if old := byRank[h.Rank]; old != nil {
			old.Close() // the node began again
		}
		byRank[h.Rank] = c
		if h.Version != version && refused == "" {
			refused = fmt.Sprintf("rank %d has NCCL %s and rank 0 has %s: all hosts of a fabric must have the same",
				h.Rank, dotted(h.Version), dotted(version))
		}
	}
	var w welcome
	if refused == "" {
		id, err = create()
		if err != nil {
			refused = err.Error()
		}
		w.ID = id[:]
	}
	if refused != "" {
		w = welcome{Error: refused}
	}
	for r, c := range byRank {
		if c == nil {
			continue
		}
		if err := json.NewEncoder(c).Encode(w); err != nil {
			return nil, id, fmt.Errorf("%w: rank %d has left", errPeers, r)
		}
	}
	if refused != "" {
		return nil, id, errors.New(refused)
	}
	return &meeting{conns: present(byRank)}, id, nil
}

func follow(q gpucheck.ReduceRequest, version int, deadline time.Time) (m *meeting, id uniqueID, err error) {
	to := net.JoinHostPort(q.Addresses[0], strconv.Itoa(q.Port))
	for {
		c, err := net.DialTimeout("tcp", to, time.Until(deadline))
		if err == nil {
			var w welcome
			_ = c.SetDeadline(deadline.Add(5 * time.Second)) // rank 0 may have begun later
			err = json.NewEncoder(c).Encode(hello{Rank: q.Rank, Version: version})
			if err == nil {
				err = json.NewDecoder(c).Decode(&w)
			}
			switch {
			case err == nil && w.Error != "":
				c.Close()
				return nil, id, errors.New(w.Error)
			case err == nil && len(w.ID) == len(id):
				copy(id[:], w.ID)
				return &meeting{conns: []net.Conn{c}}, id, nil
			}
			c.Close()
		}
		if time.Until(deadline) < 0 {
			return nil, id, fmt.Errorf("%w: rank 0 did not answer, or others did not come", errPeers)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// part waits until all nodes have their results: one that ended before would end the others' last round.
func (m *meeting) part() {
	for _, c := range m.conns {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = c.Write([]byte{'.'})
	}
	for _, c := range m.conns {
		_, _ = c.Read(make([]byte, 1))
	}
}

func present(conns []net.Conn) (out []net.Conn) {
	for _, c := range conns {
		if c != nil {
			out = append(out, c)
		}
	}
	return out
}

// from reports whether a connection comes from an address.
func from(c net.Conn, address string) bool {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	want, err2 := netip.ParseAddr(address)
	return err == nil && err2 == nil && at.Addr().Unmap() == want
}

// dotted is a version of NCCL as people write it: 22105 is 2.21.5.
func dotted(version int) string {
	return fmt.Sprintf("%d.%d.%d", version/10000, version/100%100, version%100)
}
