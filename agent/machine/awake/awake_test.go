package awake

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fake makes the given script the first systemd-inhibit in PATH, and returns the file that NOTES stands for in it.
func fake(t *testing.T, script string) (notes string) {
	t.Helper()
	dir := t.TempDir()
	notes = filepath.Join(dir, "notes")
	if err := os.WriteFile(filepath.Join(dir, "systemd-inhibit"),
		[]byte("#!/bin/sh\n"+strings.ReplaceAll(script, "NOTES", notes)), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return notes
}

const runs = `echo "$*" >>NOTES; while [ "$1" != cat ]; do shift; done; "$@"; echo released >>NOTES
`

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func sent(t *testing.T, notes string) string {
	t.Helper()
	b, err := os.ReadFile(notes)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheLockIsHeldWhileSomethingIsRented(t *testing.T) {
	notes := fake(t, runs)
	i := New(slog.New(slog.DiscardHandler))
	i.Set(false)
	if i.held != nil {
		t.Error("held with nothing rented")
	}
	i.Set(true)
	i.Set(true)
	await(t, "not taken", func() bool { return strings.Contains(sent(t, notes), "--what=sleep") })
	i.Set(false)
	await(t, "not released", func() bool { return strings.Contains(sent(t, notes), "released") })
	i.Set(true) // and again, at once
	i.Close()
	if s := sent(t, notes); strings.Count(s, "--mode=block") != 2 || strings.Count(s, "released") != 2 {
		t.Errorf("asked for:\n%s", s)
	}
}

func TestARefusedLockIsNotAskedForAllTheTime(t *testing.T) {
	notes := fake(t, "echo asked >>NOTES; exit 1\n")
	i := New(slog.New(slog.DiscardHandler))
	i.Set(true)
	<-i.held.ended
	for range 10 {
		i.Set(true)
	}
	if s := sent(t, notes); s != "asked\n" {
		t.Errorf("asked for:\n%s", s)
	}
	if !i.warned {
		t.Error("no warning was logged")
	}
	i.Close()
}

func TestAHostWithoutSystemdIsLeftAlone(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	i := New(slog.New(slog.DiscardHandler))
	i.Set(true)
	if i.held != nil {
		t.Error("something is held")
	}
	i.Close()
}
