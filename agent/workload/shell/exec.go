package shell

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

const (
	hangupLimit = 20 * time.Second // time for a process to end after its stream has
	startLimit  = time.Minute      // time for an overloaded daemon to start a process
)

// exec runs a process over the stream. It returns when the process has ended and its output is written, or when the
// stream has broken and the process is gone.
func (s *Server) exec(ctx context.Context, ref agentapi.LeaseRef, r agentapi.ExecRequest, stream net.Conn) error {
	p, err := s.node.Start(ctx, ref, r)
	if err != nil {
		return answer(stream, err)
	}
	defer p.Close()
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	started, ended := make(chan struct{}), false
	defer func() {
		<-started // the process may just have started
		if ended {
			return // as with any sshd, background processes continue
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), hangupLimit)
		defer cancel()
		p.Hangup(end)
	}()
	go func() {
		defer close(started)
		begin, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
		defer cancel()
		if err := p.Started(begin); err != nil {
			s.log.Warn("a process of a shell is not seen on the host", "lease", ref, "err", err)
		}
	}()
	if err := answer(stream, nil); err != nil {
		return err
	}
	go func() {
		defer gone()
		_ = input(ctx, p, stream, started)
	}()
	ended, err = s.output(ctx, p, stream, started)
	return err
}

// output copies what the process prints, then sends how it ended; ended reports that it has.
func (s *Server) output(ctx context.Context, p Process, stream net.Conn,
	started <-chan struct{}) (ended bool, err error) {
	copied := make(chan error, 1)
	go func() {
		copied <- p.Output(agentapi.MaxFrame, func(stderr bool, b []byte) error {
			kind := agentapi.FrameStdout
			if stderr {
				kind = agentapi.FrameStderr
			}
			return agentapi.WriteFrame(stream, kind, b)
		})
	}()
	select {
	case err := <-copied:
		if err != nil && ctx.Err() == nil {
			return false, errors.Join(err, agentapi.WriteFrame(stream, agentapi.FrameError, []byte("the output broke off")))
		}
	case <-ctx.Done():
		p.Close() // ends Output
		stream.Close()
		<-copied
		return false, nil
	}
	select {
	case <-started:
	case <-ctx.Done():
		return false, nil
	}
	code, err := p.Wait(ctx)
	if ctx.Err() != nil {
		return false, nil
	}
	if err != nil {
		return false, errors.Join(err, agentapi.WriteFrame(stream, agentapi.FrameError,
			[]byte("the host does not know how the process ended")))
	}
	return true, agentapi.WriteFrame(stream, agentapi.FrameExit, binary.BigEndian.AppendUint32(nil, uint32(code)))
}

// input reads frames until the stream ends. Input for a process that does not read waits in a queue of its own, so that
// the end of the stream is noticed anyway; the sender learns what was taken, and sends at most agentapi.MaxUntaken
// ahead.
func input(ctx context.Context, p Process, stream net.Conn, started <-chan struct{}) error {
	queue := newQueue(agentapi.MaxUntaken)
	defer queue.close()
	go queue.drain(p, func(n int) error {
		return agentapi.WriteFrame(stream, agentapi.FrameTaken, binary.BigEndian.AppendUint32(nil, uint32(n)))
	})
	var buf []byte
	for {
		kind, payload, err := agentapi.ReadFrame(stream, buf)
		if err != nil {
			return err
		}
		buf = payload
		switch kind {
		case agentapi.FrameStdin:
			if !queue.put(payload) {
				return fault.New(fault.Invalid, "more input than was asked for")
			}
		case agentapi.FrameEOF:
			queue.end()
		case agentapi.FrameResize:
			if len(payload) == 4 {
				// A lost resize is no reason to end a shell: the process may have ended.
				_ = p.Resize(ctx, int(binary.BigEndian.Uint16(payload)), int(binary.BigEndian.Uint16(payload[2:])))
			}
		case agentapi.FrameSignal:
			select {
			case <-started:
				_ = p.Signal(string(payload))
			case <-ctx.Done():
				return ctx.Err()
			}
		default:
			return fault.New(fault.Invalid, "a frame of kind %d", kind)
		}
	}
}
