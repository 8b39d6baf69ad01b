package rsh

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const patience = time.Minute

func serve(t *testing.T, peer bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := Server{Program: "/bin/sh", Peer: func(net.IP) bool { return peer }, Env: append(os.Environ(), "RANK=3"),
		Args: func(r Request) []string { return []string{"-c", r.Command} }}
	go func() {
		if err := s.Serve(l); err != nil {
			t.Error(err)
		}
	}()
	return l.Addr().String()
}

func TestACommandOnAnotherRank(t *testing.T) {
	t.Parallel()
	at := serve(t, true)
	for _, tc := range []struct {
		command, in, out, errs string
		code                   int
	}{
		{"echo rank $RANK; echo bad >&2; exit 7", "", "rank 3\n", "bad\n", 7},
		{"cat", strings.Repeat("0123456789", 1<<16), strings.Repeat("0123456789", 1<<16), "", 0},
		{"kill -TERM $$", "", "", "", 143},
	} {
		var out, errs bytes.Buffer
		if code := Run(at, Request{tc.command}, strings.NewReader(tc.in), &out, &errs); code != tc.code ||
			out.String() != tc.out || errs.String() != tc.errs {
			t.Errorf("%s: %d, %d bytes, %q", tc.command, code, out.Len(), errs.String())
		}
	}
}

func TestACommandEndsWithItsClient(t *testing.T) {
	t.Parallel()
	at := serve(t, true)
	file := filepath.Join(t.TempDir(), "pid")
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		c, err := net.Dial("tcp", at)
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(c, server); c.Close() }()
		_, _ = io.Copy(server, c)
	}()
	if _, err := io.WriteString(client, `{"command":"echo $$ >`+file+`.new; mv `+file+`.new `+file+
		`; sleep 600; sleep 600"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	var pid int
	until(t, "the command runs", func() bool {
		b, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	client.Close()
	until(t, "the command is gone", func() bool { return syscall.Kill(pid, 0) != nil })
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time: ", what)
		}
	}
}

func TestAStrangerIsNotAnswered(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := Run(serve(t, false), Request{"echo in"}, nil, &out, &errs); code != ExitLost || out.Len() > 0 {
		t.Errorf("%d %q", code, out.String())
	}
}

func TestArgumentsAreSSHs(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"-x node-1 orted --hnp 1":                       "node-1:61022|orted --hnp 1|false|true",
		"-n -o StrictHostKeyChecking=no -p 22 me@n ls":  "n:61022|ls|true|true",
		"-q -- node-0":                                  "node-0:61022||false|true",
		"-o PasswordAuthentication=no node-1 hostname":  "node-1:61022|hostname|false|true", // DeepSpeed
		"-o PasswordAuthentication=no -p22 node-1 true": "node-1:61022|true|false|true",     // Horovod
		"-xaTnlroot node-1 env -f -N":                   "node-1:61022|env -f -N|true|true",
		"-xl root node-1 env":                           "node-1:61022|env|false|true", // pdsh
		"-p 2222 node-1":                                "node-1:61022||false|false",
		"-p2222 node-1":                                 "node-1:61022||false|false",
		"-nNT -L 1:localhost:1 x":                       "x:61022||true|false",
		"-O exit node-1":                                "node-1:61022||false|false",
		"-o Q=no node-1 -p 22 -i key -n ls -p 1":        "node-1:61022|ls -p 1|true|true",
		"node-1 -p 2222 ls":                             "node-1:61022|ls|false|false",
		"node-1 -x -- -n ls":                            "node-1:61022|-n ls|false|true",
		"-- node-1 -n ls":                               "node-1:61022|-n ls|false|true",
		"-oport=2222 node-1 ls":                         "node-1:61022|ls|false|false",
		"node-1 -o Port=22 ls":                          "node-1:61022|ls|false|true",
		"-s node-1 sftp":                                "node-1:61022|sftp|false|false",
		"node-1 -s sftp":                                "node-1:61022|sftp|false|false",
		"a@b@node-1 ls":                                 "node-1:61022|ls|false|true",
		"ssh://node-1 -n ls":                            "node-1:61022|ls|true|true",
		"ssh://me@node-1:22/ ls":                        "node-1:61022|ls|false|true",
		"ssh://me@node-1:2222 ls":                       "node-1:61022|ls|false|false",
		"ssh://[fd00::1]:22 ls":                         "[fd00::1]:61022|ls|false|true",
	} {
		a, err := Parse(strings.Fields(line))
		got := fmt.Sprintf("%s|%s|%t|%t", a.Address(), a.Request.Command, a.NoInput, a.Plain)
		if err != nil || got != want {
			t.Errorf("%s: %s %v", line, got, err)
		}
	}
	for _, line := range []string{"-x", "-V", "-l root", "ssh://", "ssh://node-1/path ls", "ssh://node-1:x ls"} {
		if a, err := Parse(strings.Fields(line)); err == nil {
			t.Errorf("%s: host %s", line, a.Host)
		}
	}
}

func TestRanksAreNodes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("127.0.0.1\tlocalhost\n10.77.0.1\tnode-0\n10.77.0.2\tnode-1\n10.0.0.1 other\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if r := Ranks(file); len(r) != 2 || !r["node-1"].Equal(net.IPv4(10, 77, 0, 2)) {
		t.Errorf("%v", r)
	}
}
