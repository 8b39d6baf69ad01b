package agentapi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A shell connection (PurposeShell) is yamux over the dialled stream. The server opens streams in it; each begins with
// one line, a ShellRequest, which the agent answers with one line, a ShellReply. After a reply without an error an
// exec's stream carries frames in both directions, and a port's stream carries plain bytes.

// ShellRequest requests one stream to a node.
type ShellRequest struct {
	Op   string       `json:"op"` // ShellExec, ShellPort
	Exec *ExecRequest `json:"exec,omitempty"`
	// Address, for ShellPort, is host:port as seen from inside the node, where host is an IP address.
	Address string `json:"address,omitempty"`
}

const (
	ShellExec = "exec"
	ShellPort = "port"
)

// ShellReply reports success, or why the request failed.
type ShellReply struct {
	Error string `json:"error,omitempty"` // for the renter
	// Refused: the port does not accept connections, as opposed to a failure on the way to it.
	Refused bool `json:"refused,omitempty"`
}

// These are the kinds of an ExecRequest.
const (
	ExecLogin   = "login"   // the user's shell, or a built-in one
	ExecCommand = "command" // Command, run by that shell
	ExecSFTP    = "sftp"    // the injected sftp server
)

// GuestBinary is the path of the injected binary in every container of a node.
const GuestBinary = "/run/muster/guest"

// SocketConnected is what "GuestBinary socket PATH" prints first, before what the socket's other end sends.
const SocketConnected = "connected\n"

// ExecRequest is a process to run in the renter's container, as the container's user.
type ExecRequest struct {
	Kind    string   `json:"kind"`
	Command string   `json:"command,omitempty"`
	Env     []string `json:"env,omitempty"` // KEY=value, added to the container's own
	TTY     bool     `json:"tty,omitempty"`
	Cols    int      `json:"cols,omitempty"`
	Rows    int      `json:"rows,omitempty"`
	// WorkDir: begin in the image's working directory instead of the user's home.
	WorkDir bool `json:"work_dir,omitempty"`
}

// FrameKind is the kind of a frame on an exec's stream.
type FrameKind byte

const (
	FrameStdin  FrameKind = 1 // to the agent
	FrameEOF    FrameKind = 2 // to the agent: standard input ends
	FrameResize FrameKind = 3 // to the agent: two uint16, columns and rows
	FrameSignal FrameKind = 4 // to the agent: a name without SIG, as in RFC 4254
	FrameStdout FrameKind = 5
	FrameStderr FrameKind = 6
	FrameExit   FrameKind = 7 // from the agent, last frame: uint32, the exit code
	FrameError  FrameKind = 8 // from the agent, last frame: why it broke off, for the renter
	FrameTaken  FrameKind = 9 // from the agent: uint32, number of input bytes that the process has taken
)

// MaxUntaken is how many bytes of input may be in transit to a process that has not taken them; the agent closes the
// stream of a sender that exceeds it.
const MaxUntaken = 512 << 10

// MaxFrame is the longest payload of a frame, in bytes.
const MaxFrame = 32 << 10

// WriteFrame writes one frame in one write: kind, length (4 bytes, big-endian), payload.
func WriteFrame(w io.Writer, kind FrameKind, payload []byte) error {
	if len(payload) > MaxFrame {
		return fmt.Errorf("a frame of %d bytes", len(payload))
	}
	b := make([]byte, 5, 5+len(payload))
	b[0] = byte(kind)
	binary.BigEndian.PutUint32(b[1:], uint32(len(payload)))
	_, err := w.Write(append(b, payload...))
	return err
}

// ReadFrame reads one frame into buf, which grows as needed. It returns io.EOF at the end between two frames.
func ReadFrame(r io.Reader, buf []byte) (FrameKind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, buf[:0], err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxFrame {
		return 0, buf[:0], errors.New("the stream of an exec is damaged")
	}
	if cap(buf) < int(n) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return 0, buf[:0], fmt.Errorf("a frame is cut off: %w", err)
	}
	return FrameKind(head[0]), buf, nil
}

// MaxShellLine is the longest request or reply of a shell connection, in bytes.
const MaxShellLine = 256 << 10

// ReadShellLine reads up to a newline and no byte further.
func ReadShellLine(r io.Reader) ([]byte, error) {
	var line []byte
	one := make([]byte, 1)
	for len(line) < MaxShellLine {
		if _, err := io.ReadFull(r, one); err != nil {
			return nil, err
		}
		if one[0] == '\n' {
			return line, nil
		}
		line = append(line, one[0])
	}
	return nil, errors.New("a line of a shell connection is too long")
}
