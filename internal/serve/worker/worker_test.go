package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestJobsRunUntilStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ran, failed atomic.Int64
		w := New(slog.New(slog.DiscardHandler),
			Job{Name: "well", Every: time.Second, Run: func(context.Context) (int, error) { ran.Add(1); return 1, nil }},
			Job{
				Name:  "ill",
				Every: time.Second,
				Run:   func(context.Context) (int, error) { failed.Add(1); return 0, errors.New("no") },
			},
			Job{Name: "mad", Every: time.Second, Run: func(context.Context) (int, error) { panic("a bad row") }})
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w.Start(t.Context()) == nil {
			t.Error("started twice")
		}
		time.Sleep(2 * time.Minute) // the bubble's clock
		synctest.Wait()
		if n := ran.Load(); n < 100 || n > 140 {
			t.Errorf("a job of every second ran %d times in two minutes", n)
		}
		if n := failed.Load(); n < 5 || n > 15 {
			t.Errorf("a failing job ran %d times in two minutes: want ever longer pauses", n)
		}
		if err := w.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := ran.Load()
		time.Sleep(time.Minute)
		if ran.Load() != before {
			t.Error("ran on after Stop")
		}
	})
}

func TestRunOnce(t *testing.T) {
	t.Parallel()
	w := New(slog.New(slog.DiscardHandler), Job{
		Name: "mad",
		Run:  func(context.Context) (int, error) { panic("a bad row") },
	})
	if _, err := w.RunOnce(t.Context(), "mad"); err == nil || !strings.Contains(err.Error(), "a bad row") ||
		!strings.Contains(err.Error(), "worker_test.go") {
		t.Errorf("panic came out as %v", err)
	}
	if _, err := w.RunOnce(t.Context(), "other"); err == nil {
		t.Error("ran a job that is not there")
	}
}

func TestTailKeepsWholeLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789\n", 100)
	for _, c := range []struct {
		name, in string
		limit    int
		want     string
		cut      bool
	}{
		{"empty", "", 10, "", false},
		{"fits", "a\nb\n", 10, "a\nb\n", false},
		{"cut", "aaaa\nbbbb\ncccc\n", 11, "bbbb\ncccc\n", true},
		{"cut in a line", "aaaa\nbbbb\ncccc\n", 8, "cccc\n", true},
		{"one line too long", strings.Repeat("x", 50), 10, "", true},
		{"much", long, 25, "0123456789\n0123456789\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, cut, err := tail(strings.NewReader(c.in), c.limit)
			if err != nil || string(got) != c.want || cut != c.cut {
				t.Errorf("tail = %q, %v, %v; want %q, %v", got, cut, err, c.want, c.cut)
			}
		})
	}
	if _, _, err := tail(io.MultiReader(strings.NewReader("a\n"), broken{}), 10); err == nil {
		t.Error("a broken stream came out as a whole log")
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection lost") }
