package gateway

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/dialback"
)

// Limits on the environment that a session may request.
const (
	maxEnv     = 100
	maxEnvSize = 32 << 10
)

// exitLost is the exit code that ssh itself uses for failures other than the command's.
const exitLost = 255

// session is one session channel: requests that configure it, and then one process.
type session struct {
	v  *visit
	ch ssh.Channel

	mu      sync.Mutex
	r       agentapi.ExecRequest
	envSize int
	begun   bool
	process *dialback.Process // set when it runs
	over    bool              // the visitor has disconnected
}

func (v *visit) session(c ssh.NewChannel) {
	ch, requests, err := c.Accept()
	if err != nil {
		return
	}
	s := &session{v: v, ch: ch, r: agentapi.ExecRequest{WorkDir: v.WorkDir}}
	var runs sync.WaitGroup
	for r := range requests {
		start, ok := s.request(r)
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
		if start {
			runs.Go(s.run)
		}
	}
	s.leave()
	runs.Wait()
}

// request handles one request of the channel. start is true if the process must be started now.
func (s *session) request(r *ssh.Request) (start, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Type {
	case "env":
		return false, s.env(r.Payload)
	case "pty-req":
		return false, s.pty(r.Payload)
	case "window-change":
		return false, s.resize(r.Payload)
	case "signal":
		return false, s.signal(r.Payload)
	case "shell":
		s.r.Kind = agentapi.ExecLogin
	case "exec":
		var m struct{ Command string }
		if ssh.Unmarshal(r.Payload, &m) != nil {
			return false, false
		}
		s.r.Kind, s.r.Command = agentapi.ExecCommand, m.Command
	case "subsystem":
		var m struct{ Name string }
		if ssh.Unmarshal(r.Payload, &m) != nil || m.Name != "sftp" {
			return false, false
		}
		s.r.Kind, s.r.TTY = agentapi.ExecSFTP, false
	default: // auth-agent-req@openssh.com, x11-req, …
		return false, false
	}
	if s.begun {
		return false, false
	}
	s.begun = true
	return true, true
}

func (s *session) env(payload []byte) bool {
	var m struct{ Name, Value string }
	if ssh.Unmarshal(payload, &m) != nil || s.begun || m.Name == "" || strings.ContainsAny(m.Name, "=\x00") ||
		strings.ContainsRune(m.Value, 0) {
		return false
	}
	s.envSize += len(m.Name) + len(m.Value)
	if len(s.r.Env) >= maxEnv || s.envSize > maxEnvSize {
		return false
	}
	s.r.Env = append(s.r.Env, m.Name+"="+m.Value)
	return true
}

func (s *session) pty(payload []byte) bool {
	var m struct {
		Term                      string
		Cols, Rows, Width, Height uint32
		Modes                     string
	}
	if ssh.Unmarshal(payload, &m) != nil || s.begun {
		return false
	}
	s.r.TTY, s.r.Cols, s.r.Rows = true, dimension(m.Cols), dimension(m.Rows)
	if m.Term != "" && len(m.Term) < 64 && !strings.ContainsRune(m.Term, 0) {
		s.r.Env = append(s.r.Env, "TERM="+m.Term)
	}
	return true
}

func dimension(n uint32) int { return int(min(n, 1<<16-1)) }

func (s *session) resize(payload []byte) bool {
	var m struct{ Cols, Rows, Width, Height uint32 }
	if ssh.Unmarshal(payload, &m) != nil {
		return false
	}
	s.r.Cols, s.r.Rows = dimension(m.Cols), dimension(m.Rows)
	if s.process != nil {
		_ = s.process.Resize(s.r.Cols, s.r.Rows)
	}
	return true
}

func (s *session) signal(payload []byte) bool {
	var m struct{ Name string }
	if ssh.Unmarshal(payload, &m) != nil || s.process == nil {
		return false
	}
	return s.process.Signal(m.Name) == nil
}

// leave ends the process because the visitor has closed the channel or disconnected.
func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.process != nil {
		s.process.Close()
	}
}

// run starts the process and waits until it ends.
func (s *session) run() {
	defer s.ch.Close()
	code, err := s.exec()
	if err != nil {
		fmt.Fprintf(s.ch.Stderr(), "muster: %s\r\n", s.v.message(err))
		code = exitLost
	}
	_, _ = s.ch.SendRequest("exit-status", false, binary.BigEndian.AppendUint32(nil, uint32(code)))
}

func (s *session) exec() (code int, err error) {
	s.mu.Lock()
	r := s.r
	s.mu.Unlock()
	if err := s.v.gateway.record(s.v.ctx, s.v.Visitor, "cluster.shell", s.v.Rank,
		map[string]any{"kind": r.Kind}); err != nil {
		return 0, err
	}
	node, err := s.v.node(s.v.Rank)
	if err != nil {
		return 0, err
	}
	p, err := node.Exec(s.v.ctx, r)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	if !s.own(p, r) {
		return exitLost, nil
	}
	go func() {
		// The end of the channel's input does not mean that the visitor has disconnected; the end of its requests does.
		if _, err := io.Copy(p, s.ch); err == nil {
			_ = p.CloseWrite()
		}
	}()
	return p.Run(s.ch, s.ch.Stderr())
}

// own sets the session's process. It returns false if the visitor has disconnected meanwhile.
func (s *session) own(p *dialback.Process, started agentapi.ExecRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.process = p
	if s.r.TTY && (s.r.Cols != started.Cols || s.r.Rows != started.Rows) {
		_ = p.Resize(s.r.Cols, s.r.Rows) // the window was resized during the start
	}
	return true
}
