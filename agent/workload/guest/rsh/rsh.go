// Package rsh runs commands on other ranks of a cluster, for launchers that use rsh or ssh between nodes (mpirun). The
// injected binary is both sides: a server next to each rank's command, and a client that takes ssh's arguments.
//
// Invariants: the server listens on the cluster's own network only and serves only its ranks, which belong to one
// renter; it runs commands as the user of the container that it is in, who could do the same from inside; a command
// ends when its client is gone.
package rsh

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// Port is where servers listen: above the range of outgoing connections.
const Port = 61022

// Request is the first line that a client sends.
type Request struct {
	Command string `json:"command"` // run by the user's shell; "" = the shell itself, without a terminal
}

// Server serves the ranks that Peer accepts.
type Server struct {
	Program string                 // the injected binary
	Peer    func(net.IP) bool      // whether an address is a rank's
	Args    func(Request) []string // arguments of Program, for a request
	Env     []string
}

// Serve accepts connections until the listener is closed.
func (s Server) Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond) // out of descriptors: do not spin
			continue
		}
		go func() {
			defer c.Close()
			if a, ok := c.RemoteAddr().(*net.TCPAddr); ok && s.Peer(a.IP) {
				s.handle(c)
			}
		}()
	}
}

func (s Server) handle(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	line, err := agentapi.ReadShellLine(c)
	var r Request
	if err != nil || json.Unmarshal(line, &r) != nil {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	out := &frames{w: c}
	code, err := s.run(r, c, out)
	if err != nil {
		out.write(agentapi.FrameError, []byte(err.Error()))
		return
	}
	out.write(agentapi.FrameExit, binary.BigEndian.AppendUint32(nil, uint32(code)))
}

func (s Server) run(r Request, in io.Reader, out *frames) (code int, err error) {
	cmd := exec.Command(s.Program, s.Args(r)...)
	cmd.Env = s.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdout, cmd.Stderr = out.stream(agentapi.FrameStdout), out.stream(agentapi.FrameStderr)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		if !feed(in, stdin) {
			select {
			case <-ended:
			default: // the client is gone: end its command
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGHUP)
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			}
		}
	}()
	err = cmd.Wait()
	close(ended)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), nil
	case errors.As(err, &exit):
		return 128 + int(exit.Sys().(syscall.WaitStatus).Signal()), nil
	}
	return 0, err
}

// feed sends input to the command until the client's input ends (true), or the client is gone (false).
func feed(in io.Reader, stdin io.WriteCloser) bool {
	defer stdin.Close()
	var buf []byte
	for open := true; ; {
		kind, payload, err := agentapi.ReadFrame(in, buf)
		if err != nil {
			return false
		}
		buf = payload
		switch {
		case kind == agentapi.FrameEOF:
			open = false
			stdin.Close() // keep reading to notice when the client leaves
		case kind == agentapi.FrameStdin && open:
			if _, err := stdin.Write(payload); err != nil {
				open = false // the command does not read it
			}
		}
	}
}

// frames writes complete frames; it is safe for concurrent use.
type frames struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *frames) write(kind agentapi.FrameKind, b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return agentapi.WriteFrame(f.w, kind, b)
}

func (f *frames) stream(kind agentapi.FrameKind) io.Writer {
	return writer(func(b []byte) (int, error) {
		for n := 0; n < len(b); n += agentapi.MaxFrame {
			if err := f.write(kind, b[n:min(n+agentapi.MaxFrame, len(b))]); err != nil {
				return n, err
			}
		}
		return len(b), nil
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// ExitLost is ssh's exit code for failures other than the command's.
const ExitLost = 255

// Run is the client: it runs the command on the rank at address and returns its exit code.
func Run(address string, r Request, in io.Reader, stdout, stderr io.Writer) int {
	lost := func(err error) int {
		fmt.Fprintf(stderr, "muster: %s: %v\n", address, err)
		return ExitLost
	}
	c, err := net.DialTimeout("tcp", address, 30*time.Second)
	if err != nil {
		return lost(err)
	}
	defer c.Close()
	line, err := json.Marshal(r)
	if err != nil {
		return lost(err)
	}
	if _, err := c.Write(append(line, '\n')); err != nil {
		return lost(err)
	}
	go send(c, in)
	var buf []byte
	for {
		kind, payload, err := agentapi.ReadFrame(c, buf)
		if err != nil {
			return lost(errors.New("the connection was lost"))
		}
		buf = payload
		switch kind {
		case agentapi.FrameStdout:
			_, err = stdout.Write(payload)
		case agentapi.FrameStderr:
			_, err = stderr.Write(payload)
		case agentapi.FrameExit:
			if len(payload) == 4 {
				return int(binary.BigEndian.Uint32(payload))
			}
		case agentapi.FrameError:
			return lost(errors.New(string(payload)))
		}
		if err != nil {
			return lost(err)
		}
	}
}

// send forwards input; nil input ends at once.
func send(c io.Writer, in io.Reader) {
	buf := make([]byte, agentapi.MaxFrame)
	for in != nil {
		n, err := in.Read(buf)
		if n > 0 && agentapi.WriteFrame(c, agentapi.FrameStdin, buf[:n]) != nil {
			return
		}
		if err != nil {
			break
		}
	}
	_ = agentapi.WriteFrame(c, agentapi.FrameEOF, nil)
}

// valued are ssh's options that take a value. otherUse are those that do something else than to run a command.
const (
	valued   = "BbcDEeFIiJLlmOoPpQRSWw"
	otherUse = "DfGLMNOQRsVWw"
	sshPort  = "22"
)

// Arguments are what a launcher passes to ssh.
type Arguments struct {
	Host    string
	Request Request
	NoInput bool // -n
	Plain   bool // they only run a command, at ssh's own port
}

// Address returns where the server of the host listens.
func (a Arguments) Address() string { return net.JoinHostPort(a.Host, strconv.Itoa(Port)) }

// Parse parses ssh's arguments: options, a host, more options, a command. "--" ends the options.
func Parse(args []string) (Arguments, error) {
	a := Arguments{Plain: true}
	args, ended := a.options(args)
	if len(args) == 0 {
		return a, errors.New("usage: rsh [ssh's options] HOST [COMMAND…]")
	}
	if err := a.destination(args[0]); err != nil {
		return a, err
	}
	args = args[1:]
	if !ended {
		args, _ = a.options(args)
	}
	a.Request.Command = strings.Join(args, " ")
	return a, nil
}

// options reads the options at the start of args and returns the rest. ended reports whether "--" ended them.
func (a *Arguments) options(args []string) (rest []string, ended bool) {
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		options := args[0][1:]
		args = args[1:]
		if options == "-" {
			return args, true
		}
		for i, o := range options {
			a.NoInput = a.NoInput || o == 'n'
			a.Plain = a.Plain && !strings.ContainsRune(otherUse, o)
			if !strings.ContainsRune(valued, o) {
				continue
			}
			value := options[i+1:]
			if value == "" && len(args) > 0 {
				value, args = args[0], args[1:]
			}
			a.Plain = a.Plain && (o != 'p' || value == sshPort) && (o != 'o' || !otherPort(value))
			break
		}
	}
	return args, false
}

// otherPort reports whether the value of -o sets another port than ssh's own.
func otherPort(value string) bool {
	f := strings.FieldsFunc(value, func(r rune) bool { return r == '=' || r == ' ' })
	return len(f) == 2 && strings.EqualFold(f[0], "port") && f[1] != sshPort
}

// destination reads [user@]host or ssh://[user@]host[:port].
func (a *Arguments) destination(s string) error {
	if !strings.HasPrefix(s, "ssh://") {
		a.Host = s[strings.LastIndexByte(s, '@')+1:]
		return nil
	}
	u, err := url.Parse(s)
	if err != nil {
		return err
	}
	if u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
		return fmt.Errorf("%q is not of the form ssh://[user@]host[:port]", s)
	}
	a.Host = u.Hostname()
	a.Plain = a.Plain && (u.Port() == "" || u.Port() == sshPort)
	return nil
}

// Ranks returns the addresses of the cluster's nodes in an /etc/hosts file: lines that end in a node's name.
func Ranks(hosts string) map[string]net.IP {
	out := map[string]net.IP{}
	b, err := os.ReadFile(hosts)
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 2 && strings.HasPrefix(f[1], "node-") {
			if ip := net.ParseIP(f[0]); ip != nil {
				out[f[1]] = ip
			}
		}
	}
	return out
}
