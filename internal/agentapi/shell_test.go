package agentapi

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestFramesComeBackWhole(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	for _, f := range []struct {
		kind FrameKind
		text string
	}{{FrameStdin, "a"}, {FrameEOF, ""}, {FrameStdout, strings.Repeat("x", MaxFrame)}} {
		if err := WriteFrame(&b, f.kind, []byte(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteFrame(&b, FrameStdin, make([]byte, MaxFrame+1)); err == nil {
		t.Error("a frame over the limit was written")
	}
	var sizes []int
	var buf []byte
	for {
		kind, payload, err := ReadFrame(&b, buf)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		buf, sizes = payload, append(sizes, int(kind), len(payload))
	}
	if got, want := sizes, []int{1, 1, 2, 0, 5, MaxFrame}; len(got) != 6 || got[3] != want[3] || got[5] != want[5] {
		t.Errorf("%v, want %v", got, want)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 1, 'a'})
	f.Add([]byte{1, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			_, payload, err := ReadFrame(r, nil)
			if err != nil {
				return
			}
			if len(payload) > MaxFrame {
				t.Fatalf("a payload of %d bytes", len(payload))
			}
		}
	})
}

func TestAShellLineEndsWhereItEnds(t *testing.T) {
	t.Parallel()
	r := strings.NewReader("{}\nrest")
	line, err := ReadShellLine(r)
	if rest, _ := io.ReadAll(r); err != nil || string(line) != "{}" || string(rest) != "rest" {
		t.Errorf("%q %q %v", line, rest, err)
	}
	if _, err := ReadShellLine(io.LimitReader(zeros{}, MaxShellLine+1)); err == nil {
		t.Error("a line without end was read")
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }
