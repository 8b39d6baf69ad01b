package container

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/moby/moby/client"

	"github.com/musterhq/muster/internal/agentapi"
)

// LogOptions choose part of a workload's output.
type LogOptions struct {
	Tail   int // the last lines only; 0 = all
	Follow bool
}

// maxLine is the longest line that is passed on whole, in bytes; Docker cuts output without newlines every 16 KiB.
const maxLine = 64 << 10

// Logs calls emit for every line of a workload's output, in order, and returns when the output ends (with Follow: when
// the container does), ctx ends, or emit fails. A slow emit slows the reading down, not the workload.
func (e *Engine) Logs(ctx context.Context, ref agentapi.LeaseRef, opts LogOptions,
	emit func(agentapi.LogFrame) error) error {
	tail := "all"
	if opts.Tail > 0 {
		tail = strconv.Itoa(opts.Tail)
	}
	r, err := e.docker.ContainerLogs(ctx, e.name(ref, Work), client.ContainerLogsOptions{
		ShowStdout: true, ShowStderr: true, Timestamps: true, Follow: opts.Follow, Tail: tail})
	if err != nil {
		return unavailable(err, "read the log of %s", ref)
	}
	defer r.Close()
	return readLog(r, emit)
}

// readLog reads Docker's multiplexed stream: an 8-byte header (stream, length), then one message: a time stamp, a
// space, and a line or a part of one. A progress bar, which prints carriage returns and no newline, is passed on
// when Docker has a part of it, and a line that is too long is cut between two characters.
func readLog(r io.Reader, emit func(agentapi.LogFrame) error) error {
	br := bufio.NewReaderSize(r, 32<<10)
	var partial [3]bytes.Buffer // by stream
	var since [3]int64
	flush := func(stream byte, n int) error {
		f := agentapi.LogFrame{TimeMS: since[stream], Stderr: stream == 2,
			Line: strings.ToValidUTF8(strings.TrimSuffix(string(partial[stream].Next(n)), "\r"), "\uFFFD")}
		return emit(f)
	}
	var header [8]byte
	for {
		if _, err := io.ReadFull(br, header[:]); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return err
		}
		stream, n := header[0], binary.BigEndian.Uint32(header[4:])
		if stream > 2 || n > 1<<20 {
			return errors.New("the daemon's log stream is damaged")
		}
		msg := make([]byte, n)
		if _, err := io.ReadFull(br, msg); err != nil {
			return err
		}
		at, text := splitStamp(msg)
		if partial[stream].Len() == 0 {
			since[stream] = at
		}
		line, whole := bytes.CutSuffix(text, []byte("\n"))
		partial[stream].Write(line)
		if n := lineEnd(partial[stream].Bytes(), whole); whole || n > 0 {
			if err := flush(stream, n); err != nil {
				return err
			}
			since[stream] = at
		}
	}
	for stream := range partial {
		if partial[stream].Len() > 0 {
			if err := flush(byte(stream), partial[stream].Len()); err != nil {
				return err
			}
		}
	}
	return nil
}

// lineEnd returns how many bytes of what came of a line are to be passed on as one. If the line is not whole, that is
// what a carriage return ends that something follows, or as much as a line may have, or nothing. It depends on Docker's
// parts alone, which are the same whenever the log is read.
func lineEnd(b []byte, whole bool) int {
	switch {
	case whole || len(b) == 0:
		return len(b)
	case bytes.LastIndexByte(b[:len(b)-1], '\r') >= 0:
		return bytes.LastIndexByte(b[:len(b)-1], '\r') + 1
	case len(b) < maxLine:
		return 0
	}
	for n := 1; n < utf8.UTFMax; n++ { // a character of which only the beginning is there
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) && !utf8.FullRune(tail) {
			return len(b) - n
		}
	}
	return len(b)
}

func splitStamp(msg []byte) (unixMS int64, text []byte) {
	stamp, rest, found := bytes.Cut(msg, []byte(" "))
	if t, err := time.Parse(time.RFC3339Nano, string(stamp)); found && err == nil {
		return t.UnixMilli(), rest
	}
	return 0, msg
}
