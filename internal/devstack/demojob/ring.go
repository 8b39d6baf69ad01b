package demojob

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"time"
)

// ring connects the ranks: each sends to the next one and receives from the previous one. They meet at rank 0,
// MASTER_ADDR:MASTER_PORT, as in other distributed programs.
type ring struct {
	rank, world int
	next, prev  net.Conn
	sent        int64 // bytes
}

// arrival is what a rank sends to rank 0 when it arrives; the table is the reply: where every rank listens.
type arrival struct {
	Rank int    `json:"rank"`
	Addr string `json:"addr"`
}

// meet returns when all ranks are connected, or names the missing ones.
func meet(ctx context.Context, c config) (*ring, error) {
	r := &ring{rank: c.rank, world: c.world}
	if c.world == 1 {
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.join)
	defer cancel()
	point := net.JoinHostPort(c.master, strconv.Itoa(c.port))
	tables := make(chan error, 1)
	if c.rank == 0 {
		l, err := net.Listen("tcp", point)
		if err != nil {
			return nil, fmt.Errorf("open the meeting point: %w", err)
		}
		defer l.Close()
		defer context.AfterFunc(ctx, func() { l.Close() })()
		go func() { tables <- host(l, c.world) }()
	} else {
		tables <- nil
	}
	desk, err := dial(ctx, point)
	if err != nil {
		return nil, fmt.Errorf("rank 0 does not answer at %s: %w", point, err)
	}
	defer desk.Close()
	defer context.AfterFunc(ctx, func() { desk.Close() })()
	// The address by which this rank reaches rank 0 is the one at which others reach this rank.
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: desk.LocalAddr().(*net.TCPAddr).IP})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	if err := json.NewEncoder(desk).Encode(arrival{c.rank, l.Addr().String()}); err != nil {
		return nil, fmt.Errorf("report at the meeting point: %w", err)
	}
	var table []string
	if err := json.NewDecoder(desk).Decode(&table); err != nil || len(table) != c.world {
		if c.rank == 0 && ctx.Err() != nil {
			err = <-tables
		}
		return nil, fmt.Errorf("not all ranks came: %w", err)
	}
	if r.next, err = dial(ctx, table[(c.rank+1)%c.world]); err != nil {
		return nil, fmt.Errorf("rank %d does not answer: %w", (c.rank+1)%c.world, err)
	}
	if r.prev, err = l.Accept(); err != nil {
		return nil, fmt.Errorf("rank %d does not call: %w", (c.rank+c.world-1)%c.world, err)
	}
	return r, <-tables
}

// host runs the meeting point: it waits for all ranks and sends each the table.
func host(l net.Listener, world int) error {
	table, desks := make([]string, world), make([]net.Conn, world)
	for come := 0; come < world; {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("%d of %d ranks came: %w", come, world, err)
		}
		defer c.Close()
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		var a arrival
		if json.NewDecoder(c).Decode(&a) != nil || a.Rank < 0 || a.Rank >= world {
			continue // not one of ours
		}
		if desks[a.Rank] == nil {
			come++
		}
		table[a.Rank], desks[a.Rank] = a.Addr, c
	}
	for rank, c := range desks {
		if err := json.NewEncoder(c).Encode(table); err != nil {
			return fmt.Errorf("rank %d left: %w", rank, err)
		}
	}
	return nil
}

// dial retries until ctx ends, because ranks start at different times.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 3 * time.Second}
	for {
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// allReduce sums v over all ranks, in place. Every chunk is summed in one order and its sum passed round, so all ranks
// end with the same bits.
func (r *ring) allReduce(v []float64) error {
	chunk := func(i int) []float64 {
		i = ((i % r.world) + r.world) % r.world
		return v[i*len(v)/r.world : (i+1)*len(v)/r.world]
	}
	for step := range r.world - 1 {
		if err := r.exchange(chunk(r.rank-step), chunk(r.rank-step-1), true); err != nil {
			return err
		}
	}
	for step := range r.world - 1 {
		if err := r.exchange(chunk(r.rank+1-step), chunk(r.rank-step), false); err != nil {
			return err
		}
	}
	return nil
}

func (r *ring) exchange(out, in []float64, sum bool) error {
	buf := make([]byte, 0, 8*len(out))
	for _, f := range out {
		buf = binary.LittleEndian.AppendUint64(buf, math.Float64bits(f))
	}
	done := make(chan error, 1)
	go func() {
		_, err := r.next.Write(buf)
		done <- err
	}()
	got := make([]byte, 8*len(in))
	if _, err := io.ReadFull(r.prev, got); err != nil {
		return fmt.Errorf("rank %d is lost: %w", (r.rank+r.world-1)%r.world, err)
	}
	for i := range in {
		f := math.Float64frombits(binary.LittleEndian.Uint64(got[8*i:]))
		if sum {
			f += in[i]
		}
		in[i] = f
	}
	r.sent += int64(len(buf))
	if err := <-done; err != nil {
		return fmt.Errorf("rank %d is lost: %w", (r.rank+1)%r.world, err)
	}
	return nil
}

func (r *ring) close() {
	for _, c := range []net.Conn{r.next, r.prev} {
		if c != nil {
			c.Close()
		}
	}
}
