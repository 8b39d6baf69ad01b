package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/internal/agentapi"
)

// These are names in HoldDir and NodeDir.
const (
	holdSocket   = "hold.sock"
	InitSocket   = "init.sock" // in NodeDir: where a workload's init reports
	workloadFile = "workload.json"
)

// Request is one line sent to the guest's socket, and Reply its answer.
type Request struct {
	Op        string            `json:"op"` // workload, preflight, stand_by, withdraw
	After     State             `json:"after,omitempty"`
	Wait      bool              `json:"wait,omitempty"`
	Preflight *PreflightRequest `json:"preflight,omitempty"`
}

type Reply struct {
	Error     string              `json:"error,omitempty"`
	Workload  *Workload           `json:"workload,omitempty"`
	Preflight *agentapi.Preflight `json:"preflight,omitempty"`
}

// Holder is the guest container's main process: while it runs the network namespace exists; it answers the agent, and
// records what the workload's init reports.
type Holder struct {
	Ref     agentapi.LeaseRef
	HoldDir string // HoldDir in the container
	NodeDir string // NodeDir in the container
	// Measure measures with all other ranks and passes on each result, until ctx ends. If measured is true there is a
	// result already, and it only measures again when another rank asks for it.
	Measure func(ctx context.Context, q PreflightRequest, measured bool, report func(agentapi.Preflight))

	mu       sync.Mutex
	workload Workload
	moved    chan struct{} // closed and replaced at every change of workload
	init     bool          // whether an init is connected
	flight   flight
}

// Run serves until ctx ends.
func (h *Holder) Run(ctx context.Context) error {
	h.moved = make(chan struct{})
	defer h.flight.end()
	h.workload = Workload{LeaseRef: h.Ref}
	if kept, err := readWorkload(filepath.Join(h.HoldDir, workloadFile)); err == nil && kept.LeaseRef == h.Ref {
		h.workload = kept
	}
	// Open the init's socket first: once the agent can send requests, a workload may start.
	inits, err := unixsock.Listen(filepath.Join(h.NodeDir, InitSocket), 0o666) // the image's user may be any user
	if err != nil {
		return err
	}
	defer inits.Close()
	agents, err := unixsock.Listen(filepath.Join(h.HoldDir, holdSocket), 0o600)
	if err != nil {
		return err
	}
	defer agents.Close()
	go serve(inits, func(c net.Conn) { h.serveInit(c, inits) })
	go serve(agents, func(c net.Conn) { h.serveAgent(ctx, c) })
	<-ctx.Done()
	return nil
}

func serve(l net.Listener, handle func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			handle(c)
		}()
	}
}

// These are the longest accepted lines, in bytes. The agent's line contains all ranks' addresses; only the agent can
// open the socket it comes over.
const (
	maxInitLine  = 64 << 10
	maxAgentLine = 4 << 20
)

// readLine reads one line of at most most bytes, including its end. The reader's buffer grows no further than that.
func readLine(in *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, fmt.Errorf("a line of more than %d bytes", most)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// serveAgent answers line by line. Waiting ends with the connection; a running preflight continues, for the agent that
// follows one that was killed.
func (h *Holder) serveAgent(ctx context.Context, c net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan []byte)
	go func() {
		defer cancel() // the agent closed the connection
		in := bufio.NewReader(c)
		for {
			line, err := readLine(in, maxAgentLine)
			if err != nil {
				return
			}
			select {
			case lines <- line:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case line := <-lines:
			var q Request
			var a Reply
			if err := json.Unmarshal(line, &q); err != nil {
				a.Error = "not a request: " + err.Error()
			} else if a, err = h.answer(ctx, q); err != nil {
				a.Error = err.Error()
			}
			if err := json.NewEncoder(c).Encode(a); err != nil {
				return
			}
		}
	}
}

func (h *Holder) answer(ctx context.Context, q Request) (Reply, error) {
	switch q.Op {
	case "workload":
		w, err := h.await(ctx, q)
		return Reply{Workload: &w}, err
	case "preflight":
		if q.Preflight == nil || q.Preflight.LeaseRef != h.Ref {
			return Reply{}, fmt.Errorf("this guest serves %s", h.Ref)
		}
		p, err := h.flight.result(ctx, h, *q.Preflight)
		return Reply{Preflight: &p}, err
	case "stand_by":
		if q.Preflight == nil || q.Preflight.LeaseRef != h.Ref {
			return Reply{}, fmt.Errorf("this guest serves %s", h.Ref)
		}
		h.flight.begin(h, *q.Preflight, true)
		return Reply{}, nil
	case "withdraw":
		h.flight.end()
		return Reply{}, nil
	}
	return Reply{}, fmt.Errorf(unknownRequest+"%q", q.Op)
}

const unknownRequest = "unknown request "

func (h *Holder) await(ctx context.Context, q Request) (Workload, error) {
	for {
		h.mu.Lock()
		w, moved := h.workload, h.moved
		h.mu.Unlock()
		if !q.Wait || w.State != q.After {
			return w, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return w, ctx.Err()
		}
	}
}

// serveInit receives the reports of one init. The command runs when a connection that reported "releasing" breaks: the
// descriptor closes at exec, so the kernel reports the start and not the init. The run began with that report: how long
// the kernel then takes to read the program is up to the renter's files, not to the host.
//
// The renter's program has the same user as its init, and a process of another PID namespace has no PID here, so
// SO_PEERCRED cannot distinguish them. The time of the connection does: the socket is closed before the init reads the
// answer to "releasing" and starts the command, and it accepts no second connection while the init is connected.
func (h *Holder) serveInit(c net.Conn, l net.Listener) {
	h.mu.Lock()
	second := h.init
	h.init = true
	h.mu.Unlock()
	if second {
		return
	}
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.init = false
	}()
	in := bufio.NewReader(c)
	var last Workload
	for {
		line, err := readLine(in, maxInitLine)
		if err != nil {
			break
		}
		if json.Unmarshal(line, &last) != nil || last.LeaseRef != h.Ref {
			return
		}
		last.AtMS, last.BootMS = time.Now().UnixMilli(), hostinfo.BootMS()
		if last.State == StateReleasing {
			l.Close()
			h.flight.end() // from here on the network is the renter's
		} else {
			h.note(last)
		}
		if _, err := c.Write([]byte("\n")); err != nil { // the init continues when it reads this
			return
		}
	}
	if last.State == StateReleasing {
		last.State = StateStarted
		h.note(last)
	}
}

// note stores a report with the moment at which it was made.
func (h *Holder) note(w Workload) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.workload.State == StateStarted {
		return
	}
	h.workload = w
	close(h.moved)
	h.moved = make(chan struct{})
	b, err := json.Marshal(w)
	if err == nil {
		path := filepath.Join(h.HoldDir, workloadFile)
		if err = os.WriteFile(path+".new", b, 0o600); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "keep the workload's state:", err)
	}
}

func readWorkload(path string) (w Workload, err error) {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &w)
	}
	return w, err
}
