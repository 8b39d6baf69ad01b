package dbtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is a PostgreSQL server of one test, which waits for the disk like a production server and may be killed.
type Server struct {
	t    testing.TB
	bin  string
	dir  string // parent of data/ and of the socket
	cred *syscall.Credential
	cmd  *exec.Cmd
	died chan struct{}
}

// NewServer creates a server and starts it. It stops when the test ends.
func NewServer(t testing.TB) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "mpg") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Server{t: t, dir: dir, bin: serverBinaries(t)}
	if os.Geteuid() == 0 { // PostgreSQL refuses to run as root
		s.cred = someoneElse(t)
		if err := os.Chown(dir, int(s.cred.Uid), int(s.cred.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	init := s.command("initdb", "-D", filepath.Join(dir, "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8",
		"--locale=C", "--no-sync")
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if s.cmd != nil {
			s.Kill()
		}
	})
	s.Start()
	return s
}

// URL returns the server's address.
func (s *Server) URL() string { return "postgres:///postgres?user=postgres&host=" + s.dir }

// Start starts the server, which recovers from its log if it was killed, and waits until it answers.
func (s *Server) Start() {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		if s.cmd == nil {
			s.launch(log)
		}
		if s.answers() {
			return
		}
		select {
		case <-s.died: // children of a killed server may still run
			s.cmd = nil
		default:
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			s.t.Fatalf("PostgreSQL does not start: %s", text)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *Server) launch(log *os.File) {
	cmd := s.command("postgres", "-D", filepath.Join(s.dir, "data"), "-k", s.dir, "-c", "listen_addresses=", "-c",
		"max_connections=60", "-c", "shared_buffers=32MB")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	started, died := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // sent when the thread that started it ends
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(died)
	}()
	if err := <-started; err != nil {
		s.t.Fatal(err)
	}
	s.cmd, s.died = cmd, died
}

func (s *Server) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return false
	}
	_ = c.Close(ctx)
	return true
}

// Kill kills the server at once, as a power cut would. It kills the children too, which would otherwise answer until
// they notice that the server is gone.
func (s *Server) Kill() {
	s.t.Helper()
	pid := s.cmd.Process.Pid
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Process.Kill()
	for _, child := range strings.Fields(string(raw)) {
		if n, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
	<-s.died
	s.cmd = nil
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	return cmd
}

// serverBinaries finds the newest installed server: Debian does not put it into PATH.
func serverBinaries(t testing.TB) string {
	t.Helper()
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	version := func(dir string) int {
		n, _ := strconv.Atoi(strings.Split(dir, "/")[4])
		return n
	}
	if len(dirs) > 0 {
		return slices.MaxFunc(dirs, func(a, b string) int { return version(a) - version(b) })
	}
	p, err := exec.LookPath("initdb")
	if err != nil {
		t.Fatal("no PostgreSQL server is installed")
	}
	return filepath.Dir(p)
}

func someoneElse(t testing.TB) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		var uid, gid uint32
		if _, err := fmt.Sscan(u.Uid+" "+u.Gid, &uid, &gid); err == nil {
			return &syscall.Credential{Uid: uid, Gid: gid}
		}
	}
	t.Fatal("PostgreSQL must not run as root and neither user postgres nor user nobody exists")
	return nil
}
