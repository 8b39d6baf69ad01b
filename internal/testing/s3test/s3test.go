// Package s3test runs a real S3 store for tests: versitygw, with its objects as files of a temporary folder, or Ceph's
// radosgw (see package cephtest).
package s3test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/testing/cephtest"
	"github.com/musterhq/muster/internal/testing/child"
)

// startWithin is how long a store may take until it answers.
const startWithin = 30 * time.Second

// program is where scripts/setup installs versitygw; MUSTER_TEST_VERSITYGW names another one.
const program = "/var/cache/muster/versitygw-v1.8.0/versitygw"

// Gateway is a running store.
type Gateway struct {
	Config store.S3Config // of a bucket of its own

	t       testing.TB
	program func() *exec.Cmd
	running *child.Process
}

// Start runs a store on loopback until the end of the test: versitygw, or with MUSTER_TEST_CEPH a radosgw.
func Start(t testing.TB) *Gateway {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	g := &Gateway{t: t, Config: store.S3Config{Endpoint: "http://" + addr,
		Bucket: "muster-" + strings.ToLower(rand.Text()),
		Access: cephtest.AccessKey, Secret: cephtest.SecretKey}}
	if conf := os.Getenv("MUSTER_TEST_CEPH"); conf != "" {
		g.program = cephtest.At(conf).Radosgw(addr)
	} else {
		g.program = g.versitygw(addr)
	}
	g.Run()
	t.Cleanup(g.Kill)
	return g
}

// versitygw returns the command that runs versitygw with its objects in a folder.
func (g *Gateway) versitygw(addr string) func() *exec.Cmd {
	path := os.Getenv("MUSTER_TEST_VERSITYGW")
	if path == "" {
		path = program
	}
	if _, err := os.Stat(path); err != nil {
		g.t.Fatalf("versitygw is not installed (%v): run scripts/setup test", err)
	}
	dir := g.t.TempDir()
	for _, d := range []string{"objects", "attributes"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			g.t.Fatal(err)
		}
	}
	return func() *exec.Cmd {
		return exec.Command(path, "--port", addr, "--access", g.Config.Access, "--secret", g.Config.Secret, "--quiet",
			"posix", "--sidecar", filepath.Join(dir, "attributes"), filepath.Join(dir, "objects"))
	}
}

// Run starts the store after Kill, with what it had.
func (g *Gateway) Run() {
	g.t.Helper()
	var err error
	if g.running, err = child.Start(g.program()); err != nil {
		g.t.Fatal(err)
	}
	if err := Await(g.t.Context(), g.Config); err != nil {
		g.Kill()
		g.t.Fatalf("%v\n%s", err, g.running.Output())
	}
}

// Await waits until a store answers, for half a minute at most, and makes its bucket.
func Await(ctx context.Context, cfg store.S3Config) error {
	host := strings.TrimPrefix(cfg.Endpoint, "http://")
	c, err := minio.New(host, &minio.Options{Creds: credentials.NewStaticV4(cfg.Access, cfg.Secret, ""),
		Region: "us-east-1", BucketLookup: minio.BucketLookupPath, MaxRetries: 1})
	if err != nil {
		return err
	}
	for end := time.Now().Add(startWithin); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		have, err := c.BucketExists(ctx, cfg.Bucket)
		if err == nil && !have {
			err = c.MakeBucket(ctx, cfg.Bucket, minio.MakeBucketOptions{})
		}
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the store does not answer: %w", err)
		}
	}
}

// Kill ends the store as a loss of power of its process would.
func (g *Gateway) Kill() { g.running.Kill() }

// Pause makes the store not answer, with its connections open, until Resume.
func (g *Gateway) Pause() error { return g.running.Signal(syscall.SIGSTOP) }

// Resume makes the store answer again.
func (g *Gateway) Resume() error { return g.running.Signal(syscall.SIGCONT) }
