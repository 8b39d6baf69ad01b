package overlay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/internal/agentapi"
)

// The control socket carries JSON lines: a request, then its reply. It lies in the lease folder and not where
// WireGuard's own tools look, because those find sockets by interface name and the interface of every lease is ovl0.

type request struct {
	Op     string          `json:"op"` // hello, peers, relays, status, note, hold
	Peers  []agentapi.Peer `json:"peers,omitempty"`
	Relays *relays         `json:"relays,omitempty"`
}

// Relays lists the relays that the cluster may use, and the token that opens them, which is secret.
type relays struct {
	Names []string `json:"names"`
	Token string   `json:"token"`
}

type answer struct {
	Error  string  `json:"error,omitempty"`
	Hello  *hello  `json:"hello,omitempty"`
	Status *Status `json:"status,omitempty"`
}

// hello identifies the process and what it serves.
type hello struct {
	settings
	PublicKey string `json:"public_key"`
	BoundPort int    `json:"bound_port"`
	PID       int    `json:"pid"`
}

func (p *process) accept() {
	for {
		c, err := p.listen.Accept()
		if err != nil {
			return
		}
		go p.answerAll(c)
	}
}

func (p *process) answerAll(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var q request
		a := answer{}
		if err := json.Unmarshal(line, &q); err != nil {
			a.Error = "not a request: " + err.Error()
		} else if a, err = p.answer(q); err != nil {
			a.Error = err.Error()
		}
		if err := json.NewEncoder(c).Encode(a); err != nil {
			return
		}
	}
}

func (p *process) answer(q request) (answer, error) {
	switch q.Op {
	case "hello":
		p.memory.Lock()
		defer p.memory.Unlock()
		return answer{Hello: &hello{
			settings:  p.cfg,
			PublicKey: p.key.PublicKey().String(),
			BoundPort: p.tun.port(),
			PID:       os.Getpid(),
		}}, nil
	case "peers":
		p.memory.Lock()
		defer p.memory.Unlock()
		if err := p.roster.set(q.Peers, false, time.Now()); err != nil {
			return answer{}, err
		}
		p.state.Peers = q.Peers
		return answer{}, p.remember()
	case "relays":
		p.memory.Lock()
		defer p.memory.Unlock()
		if q.Relays == nil {
			return answer{}, errors.New("no relays are named")
		}
		if err := p.tun.relays(q.Relays.Names, q.Relays.Token); err != nil {
			return answer{}, err
		}
		p.state.Relays = *q.Relays
		return answer{}, p.remember()
	case "status":
		p.memory.Lock()
		defer p.memory.Unlock()
		peers, err := p.roster.status(time.Now())
		return answer{Status: &Status{
			Ref:     p.cfg.Ref,
			Backend: p.tun.backend(),
			PID:     os.Getpid(),
			Port:    p.tun.port(),
			Peers:   peers,
			Moving:  p.moving(),
		}}, err
	case "note":
		p.memory.Lock()
		defer p.memory.Unlock()
		if _, err := p.roster.status(time.Now()); err != nil { // also reads the kernel's counters
			return answer{}, err
		}
		return answer{}, p.usage.note(p.tun)
	case "hold":
		return answer{}, nil
	}
	return answer{}, fmt.Errorf("unknown request %q", q.Op)
}

// call sends one request to the process of a folder.
func call(ctx context.Context, dir string, q request) (answer, error) {
	c, a, err := converse(ctx, dir, q)
	if err == nil {
		c.Close()
	}
	return a, err
}

// converse leaves the connection open; the connection breaks when the process ends.
func converse(ctx context.Context, dir string, q request) (net.Conn, answer, error) {
	c, err := unixsock.Dial(ctx, filepath.Join(dir, socketFile))
	if err != nil {
		return nil, answer{}, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var a answer
	if err = json.NewEncoder(c).Encode(q); err == nil {
		err = json.NewDecoder(c).Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		c.Close()
		return nil, answer{}, errors.Join(err, ctx.Err())
	}
	return c, a, nil
}

// waitGone returns when the process at the other end of the connection has ended, or with ctx's error.
func waitGone(ctx context.Context, c net.Conn) error {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, _ = io.Copy(io.Discard, c)
	return ctx.Err()
}
