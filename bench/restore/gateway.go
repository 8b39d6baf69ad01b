package restore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/id"
)

// program is where scripts/setup installs versitygw; MUSTER_TEST_VERSITYGW names another one.
const program = "/var/cache/muster/versitygw-v1.8.0/versitygw"

// newS3Platform returns a control plane with versitygw, which keeps its objects in dir, as its store.
func newS3Platform(ctx context.Context, dir string) (p *platform, end func() error, err error) {
	path := os.Getenv("MUSTER_TEST_VERSITYGW")
	if path == "" {
		path = program
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	addr := l.Addr().String()
	objects, attributes := filepath.Join(dir, "objects"), filepath.Join(dir, "attributes")
	if err := errors.Join(l.Close(), os.MkdirAll(filepath.Join(objects, "muster"), 0o700),
		os.MkdirAll(attributes, 0o700)); err != nil {
		return nil, nil, err
	}
	cfg := store.S3Config{Endpoint: "http://" + addr, Bucket: "muster", Access: "access", Secret: "secret-of-the-bench"}
	cmd := exec.CommandContext(ctx, path, "--port", addr, "--access", cfg.Access, "--secret", cfg.Secret, "--quiet",
		"posix", "--sidecar", attributes, objects)
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start versitygw: %w; scripts/setup test installs it", err)
	}
	end = func() error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return nil
	}
	s3, err := store.OpenS3(cfg)
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			break
		}
		if time.Since(begun) > 20*time.Second {
			return nil, nil, errors.Join(err, end())
		}
	}
	return &platform{store: s3, domain: id.New[id.DataDomain](), next: 1, packs: map[int64]agentapi.PackGrant{}}, end, nil
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, ReadBufferSize: 256 << 10}}
