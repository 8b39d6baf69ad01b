// Package device is the boundary between the agent's GPU monitor and a vendor's GPUs. The monitor (package gpu) keeps
// what is the same for all of them: the child process, the deadlines, the verdicts and their storage. A Vendor reads
// and changes GPUs, in that child process, so that a driver that hangs or crashes never takes the agent with it.
package device

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// Vendor is one vendor's GPUs. Its methods run on many goroutines at once, and may hang in the driver: their deadlines
// are the monitor's. GPUs are named by UUID; a Request also has the place on the PCI bus where the monitor last saw
// the GPU. A method that the vendor's GPUs do not have returns Unsupported.
type Vendor interface {
	// Start makes the driver ready. It is called before every other method, and again after a failure: a driver may be
	// installed later.
	Start() *wire.Error
	// Inventory returns the driver and the GPUs that it lists; Describe returns one GPU, and Peers how it reaches each
	// GPU by index.
	Inventory() (wire.System, *wire.Error)
	Describe(r wire.Request) (wire.Description, *wire.Error)
	Peers(r wire.Request) ([]wire.Peer, *wire.Error)
	// Sample returns what a GPU does now, Condition its defects, and Use who uses its memory.
	Sample(r wire.Request) (wire.Sample, *wire.Error)
	Condition(r wire.Request) (wire.Condition, *wire.Error)
	Use(r wire.Request) (wire.Use, *wire.Error)
	// SetPower sets a GPU's power limit.
	SetPower(r wire.Request) (wire.Power, *wire.Error)
	// Remake destroys a slice of a GPU and makes it again.
	Remake(r wire.Request) (wire.Instance, *wire.Error)
	// Reset resets a GPU that nothing uses.
	Reset(r wire.Request) *wire.Error
	// Watch starts to send the events that the driver reports, and returns without waiting for one. It is called after
	// each Inventory; only the first call has an effect.
	Watch(ctx context.Context, send func(wire.Event))
}

// Unsupported is the refusal of a method that a vendor's GPUs do not have.
func Unsupported(method string) *wire.Error {
	return &wire.Error{Code: wire.CodeNotSupported, Call: method, Text: "these GPUs do not have it"}
}

// Linger is how long a child process goes on with calls that have begun when its input ends, and how long its parent
// waits for that: a process that ends within a call leaves a driver in a bad state, on some GPUs for good.
const Linger = 2 * time.Second

// Serve answers requests from in on out until in ends, and lets those that have begun finish, for a limited time. Every
// request runs on its own goroutine, so one that is stuck in the driver delays no other. The process should exit when
// Serve returns, even if calls are still stuck.
func Serve(ctx context.Context, in io.Reader, out io.Writer, v Vendor) error {
	ctx, cancel := context.WithCancel(ctx)
	s := server{vendor: v, out: json.NewEncoder(out)}
	var calls sync.WaitGroup
	defer func() {
		cancel()
		done := make(chan struct{})
		go func() {
			calls.Wait()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(Linger):
		}
	}()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, wire.MaxLine)
	for lines.Scan() {
		var r wire.Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		calls.Go(func() {
			result, err := s.answer(ctx, r)
			s.send(wire.Message{ID: r.ID, Result: result, Error: err})
		})
	}
	return lines.Err()
}

type server struct {
	vendor Vendor

	sending sync.Mutex
	out     *json.Encoder
}

func (s *server) send(m wire.Message) {
	s.sending.Lock()
	defer s.sending.Unlock()
	_ = s.out.Encode(m) // if the parent is gone, our input is closed as well
}

func (s *server) answer(ctx context.Context, r wire.Request) (json.RawMessage, *wire.Error) {
	if r.Method == wire.MethodPing {
		return nil, nil
	}
	if err := s.vendor.Start(); err != nil {
		return nil, err
	}
	var result any
	var err *wire.Error
	switch r.Method {
	case wire.MethodStart:
	case wire.MethodSystem:
		result, err = s.vendor.Inventory()
		s.vendor.Watch(ctx, func(e wire.Event) { s.send(wire.Message{Event: &e}) })
	case wire.MethodDescribe:
		result, err = s.vendor.Describe(r)
	case wire.MethodPeers:
		result, err = s.vendor.Peers(r)
	case wire.MethodSample:
		result, err = s.vendor.Sample(r)
	case wire.MethodCondition:
		result, err = s.vendor.Condition(r)
	case wire.MethodUse:
		result, err = s.vendor.Use(r)
	case wire.MethodPower:
		result, err = s.vendor.SetPower(r)
	case wire.MethodRemake:
		result, err = s.vendor.Remake(r)
	case wire.MethodReset:
		err = s.vendor.Reset(r)
	default:
		err = &wire.Error{Call: r.Method, Text: "no such method"}
	}
	if err != nil {
		return nil, err
	}
	b, jsonErr := json.Marshal(result)
	if jsonErr != nil {
		return nil, &wire.Error{Call: r.Method, Text: jsonErr.Error()}
	}
	return b, nil
}
