package devstack

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestPostgres_IsStartedAgainAfterAKill kills the private server with SIGKILL: it comes back by itself with its data.
func TestPostgres_IsStartedAgainAfterAKill(t *testing.T) {
	t.Parallel()
	p := testPostgres(t)
	if err := p.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	watching, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.supervise(watching)
	}()
	t.Cleanup(func() {
		cancel()
		<-stopped
		if err := p.stop(context.Background()); err != nil {
			t.Error(err)
		}
		if p.alive() {
			t.Error("the server was started again after it was stopped in order")
		}
	})
	query(t, p, "CREATE TABLE kept (a int)")
	for range 2 {
		before := p.pid(t)
		if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		query(t, p, "INSERT INTO kept VALUES (1)")
		if after := p.pid(t); after == before {
			t.Errorf("process %d answers after it was killed", after)
		}
	}
}

// A program that was killed while it created the database leaves nothing in the way of the next one.
func TestPostgres_StartsAfterAHalfMadeCreation(t *testing.T) {
	t.Parallel()
	p := testPostgres(t)
	half := p.data + ".new"
	if err := os.MkdirAll(filepath.Join(half, "base", "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, "PG_VERSION"), []byte("15\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := p.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	query(t, p, "CREATE TABLE made (a int)")
	if _, err := os.Stat(half); err == nil {
		t.Error("the half-made database is still there")
	}
}

func testPostgres(t *testing.T) *postgres {
	t.Helper()
	dir, err := os.MkdirTemp("", "mdev") // its user must reach it, which t.TempDir does not allow
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := newPostgres(filepath.Join(dir, "data"), port, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *postgres) pid(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(p.data, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// query runs one statement, waiting for a server that is away.
func query(t *testing.T, p *postgres, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, p.URL())
		if err == nil {
			_, err = c.Exec(ctx, sql)
			_ = c.Close(ctx)
		}
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
