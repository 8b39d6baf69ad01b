package devstack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// postgres is a private PostgreSQL server that uses the installed binaries. initdb and postgres refuse to run as root,
// so root runs them as an unprivileged user, with their data in a folder that this user can reach.
type postgres struct {
	bin  string // directory of initdb, pg_ctl
	data string
	port int
	cred *syscall.Credential // nil if this process is not root
	log  *slog.Logger
}

func newPostgres(data string, port int, log *slog.Logger) (*postgres, error) {
	bin, err := postgresBinaries()
	if err != nil {
		return nil, err
	}
	p := &postgres{bin: bin, data: data, port: port, log: log}
	if os.Geteuid() == 0 {
		if p.cred, err = unprivileged(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// postgresBinaries finds the newest installed server: Debian does not put it into PATH.
func postgresBinaries() (string, error) {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	sort.Slice(dirs, func(i, j int) bool { return pgVersion(dirs[i]) < pgVersion(dirs[j]) })
	if len(dirs) > 0 {
		return filepath.Dir(dirs[len(dirs)-1]), nil
	}
	if p, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(p), nil
	}
	return "", errors.New("no PostgreSQL server is installed: install it (Debian: apt-get install postgresql) or run " +
		"`make demo`, which does")
}

func pgVersion(initdb string) int {
	v, _ := strconv.Atoi(strings.Split(strings.TrimPrefix(initdb, "/usr/lib/postgresql/"), "/")[0])
	return v
}

// unprivileged returns Debian's postgres user, or else no one.
func unprivileged() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("PostgreSQL must not run as root and neither user postgres nor user nobody exists")
}

// URL returns the server's address. It uses trust authentication: it listens on loopback only and holds sandbox data
// only.
func (p *postgres) URL() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/muster?sslmode=disable", p.port)
}

// start starts the server, and creates the database cluster first if there is none. It adopts a server that already
// runs because its starter was killed.
func (p *postgres) start(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(p.data, "PG_VERSION")); err != nil {
		if err := p.init(ctx); err != nil {
			return err
		}
	}
	if p.run(ctx, "pg_ctl", "-D", p.data, "status") == nil {
		p.log.Info("PostgreSQL runs already: adopted", "port", p.port)
	} else {
		options := fmt.Sprintf("-p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=300 "+
			"-c shared_buffers=128MB", p.port)
		if err := p.run(ctx, "pg_ctl", "-D", p.data, "-w", "-t", "60", "-l", filepath.Join(p.data, "server.log"), "-o",
			options, "start"); err != nil {
			said, _ := os.ReadFile(filepath.Join(p.data, "server.log"))
			return fmt.Errorf("start PostgreSQL: %w: %s (see %s)", err, lastLines(string(said), 4),
				filepath.Join(p.data, "server.log"))
		}
	}
	return p.createDatabase(ctx)
}

// supervise restarts the server whenever it has died, until ctx ends. A start can fail while children of a killed
// server still hold its shared memory; the next attempt follows a second later.
func (p *postgres) supervise(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if p.alive() {
			continue
		}
		p.log.Warn("PostgreSQL has died: starting it again")
		switch err := p.start(ctx); {
		case err == nil:
			p.log.Warn("PostgreSQL runs again")
		case ctx.Err() == nil:
			p.log.Error("PostgreSQL does not start", "err", err)
		}
	}
}

// alive reports whether the process that the data directory names as its server is running.
func (p *postgres) alive() bool { return running(p.serverPID()) }

// serverPID returns the process that the data directory names as its server; "" if there is none.
func (p *postgres) serverPID() string {
	raw, err := os.ReadFile(filepath.Join(p.data, "postmaster.pid"))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	return line
}

// running reports whether a process is a PostgreSQL server.
func running(pid string) bool {
	if pid == "" {
		return false
	}
	comm, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
	return err == nil && strings.TrimSpace(string(comm)) == "postgres"
}

// init creates the database cluster next to its place and moves it there when it is complete: a kill leaves none that
// is half made. Making its thousand files durable with one call is much faster than with initdb, which syncs each.
func (p *postgres) init(ctx context.Context) error {
	unfinished := p.data + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := os.MkdirAll(unfinished, 0o700); err != nil {
		return err
	}
	if p.cred != nil {
		if err := os.Chown(unfinished, int(p.cred.Uid), int(p.cred.Gid)); err != nil {
			return err
		}
	}
	if err := p.run(ctx, "initdb", "-D", unfinished, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C",
		"--no-sync"); err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	if err := syncFileSystem(unfinished); err != nil {
		return err
	}
	if err := os.Remove(p.data); err != nil && !errors.Is(err, fs.ErrNotExist) { // only if it is empty
		return err
	}
	return os.Rename(unfinished, p.data)
}

func (p *postgres) createDatabase(ctx context.Context) error {
	err := p.run(ctx, "createdb", "-h", "127.0.0.1", "-p", strconv.Itoa(p.port), "-U", "postgres", "muster")
	if err != nil && strings.Contains(err.Error(), "already exists") {
		return nil
	}
	return err
}

// stop stops the server in order. It is no error if it does not run.
func (p *postgres) stop(ctx context.Context) error {
	if p.run(ctx, "pg_ctl", "-D", p.data, "status") != nil {
		return nil
	}
	pid := p.serverPID()
	if err := p.run(ctx, "pg_ctl", "-D", p.data, "-m", "fast", "-w", "-t", "30", "stop"); err != nil {
		return err
	}
	// pg_ctl waits for the end of the server's lock file. The process ends a moment later.
	for limit := time.Now().Add(5 * time.Second); running(pid) && time.Now().Before(limit); {
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// run executes one of PostgreSQL's programs as the unprivileged user. The server that it starts gets its own session,
// so that a Ctrl-C meant for this program does not end the server before its clients.
func (p *postgres) run(ctx context.Context, program string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, program), args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.cred, Setsid: true}
	out, err := os.CreateTemp("", "muster-pg-*") // a pipe would stay open in the server pg_ctl leaves behind
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%s: %w: %s", program, err, lastLines(string(text), 3))
	}
	return nil
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
