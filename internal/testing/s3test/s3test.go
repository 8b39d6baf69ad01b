// Package s3test runs a real S3 store for tests: versitygw, with its objects as files of a temporary folder.
package s3test

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/musterhq/muster/internal/data/store"
)

// program is where scripts/setup installs versitygw; MUSTER_TEST_VERSITYGW names another one.
const program = "/var/cache/muster/versitygw-v1.8.0/versitygw"

// Gateway is a running store.
type Gateway struct {
	Config store.S3Config // of a bucket of its own

	t    testing.TB
	args []string
	cmd  *exec.Cmd
	died chan struct{}
	out  *bytes.Buffer
}

// Start runs a store on loopback until the end of the test.
func Start(t testing.TB) *Gateway {
	t.Helper()
	path := os.Getenv("MUSTER_TEST_VERSITYGW")
	if path == "" {
		path = program
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("versitygw is not installed (%v): run scripts/setup test", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	dir := t.TempDir()
	for _, d := range []string{"objects", "attributes"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	g := &Gateway{t: t, Config: store.S3Config{Endpoint: "http://" + addr, Bucket: "muster", Access: "access",
		Secret: "secret-of-the-test"}}
	g.args = []string{path, "--port", addr, "--access", g.Config.Access, "--secret", g.Config.Secret, "--quiet",
		"posix", "--sidecar", filepath.Join(dir, "attributes"), filepath.Join(dir, "objects")}
	g.Run()
	t.Cleanup(g.Kill)
	return g
}

// Run starts the store after Kill, with what it had.
func (g *Gateway) Run() {
	g.t.Helper()
	g.out = &bytes.Buffer{}
	g.cmd = exec.Command(g.args[0], g.args[1:]...)
	g.cmd.Stdout, g.cmd.Stderr = g.out, g.out
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := g.start(); err != nil {
		g.t.Fatal(err)
	}
	host := strings.TrimPrefix(g.Config.Endpoint, "http://")
	c, err := minio.New(host, &minio.Options{Creds: credentials.NewStaticV4(g.Config.Access, g.Config.Secret, ""),
		Region: "us-east-1", BucketLookup: minio.BucketLookupPath, MaxRetries: 1})
	if err != nil {
		g.t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		have, err := c.BucketExists(ctx, g.Config.Bucket)
		if err == nil && !have {
			err = c.MakeBucket(ctx, g.Config.Bucket, minio.MakeBucketOptions{})
		}
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			g.Kill()
			g.t.Fatalf("versitygw does not answer: %v\n%s", err, g.out)
		}
	}
}

// start starts the process on a thread that lives as long as the process: it is killed when the thread ends.
func (g *Gateway) start() error {
	started := make(chan error)
	cmd, died := g.cmd, make(chan struct{})
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(died)
	}()
	g.died = died
	return <-started
}

// Kill ends the store as a loss of power of its process would.
func (g *Gateway) Kill() {
	if g.cmd == nil {
		return
	}
	_ = g.cmd.Process.Kill()
	<-g.died
	g.cmd = nil
}

// Pause makes the store not answer, with its connections open, until Resume.
func (g *Gateway) Pause() error { return g.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume makes the store answer again.
func (g *Gateway) Resume() error { return g.cmd.Process.Signal(syscall.SIGCONT) }
